"""The default runtime: sandboxes made of Linux namespaces, with nothing but the standard library.

What may live here: the main process's side of it. What becomes the sandboxes is in forked/, which imports nothing of
sandpool outside itself, so that the process that everything is forked from is small and knows no secrets.
"""
