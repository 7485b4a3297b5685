"""`python -m sparkonce.cli` is the command `sparkonce`."""

from sparkonce.cli.main import main

main()
