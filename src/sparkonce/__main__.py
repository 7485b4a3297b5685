"""`python -m sparkonce` is the command `sparkonce`."""

from sparkonce.cli.main import main

main()
