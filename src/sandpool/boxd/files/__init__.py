"""Files of the sandbox: read, written, watched, and moved as whole trees.

What may live here: file access through open directories, never through a path that a program inside could change on the way. Processes and
HTTP parsing belong elsewhere.
"""
