"""Code that runs in processes forked by the gVisor fork server, and inside the sandbox.

What may live here: code that imports only the standard library and the `forked` package of namespaces. All of it is loaded before the first
sandbox is forked, and must hold no secrets.
"""
