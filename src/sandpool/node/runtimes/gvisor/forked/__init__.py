"""What runs in processes of the fork-server, and in the sandbox. What may live here: the standard library, `forked` of namespaces.

Everything here is loaded before the first sandbox is forked, and holds no secret.
"""
