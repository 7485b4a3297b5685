"""The command `sparkonce`: one file per noun. Imported by nobody."""
