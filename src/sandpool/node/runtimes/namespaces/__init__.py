"""The default runtime: sandboxes made of Linux namespaces, with only the standard library.

What may live here: the main process's side of the runtime. Code that runs in forked processes is in forked/, which imports nothing of
sandpool except itself and node/openat.py, so that the process from which everything is forked is small and holds no secrets.
"""
