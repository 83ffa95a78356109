"""The `sandpool` command: one module per command, plus flags, output and messages that commands share.

A command parses flags, calls the parts that do the work, and prints. Logic that another program could use belongs into those parts.
"""
