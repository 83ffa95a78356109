"""The command line: each command is options in, an action on the assembled parts, text out."""
