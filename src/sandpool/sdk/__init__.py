"""What most users meet: Sandbox and AsyncSandbox.

What may live here: the client side of claims and of boxd. The source is asynchronous (_async/); _sync/ is generated from it by
tools/unasync.py, except what tools/unasync.py names as written by hand. Values, errors and configuration are shared. It needs no more than
the standard library, h11 and what kube/ reads configuration with, so that `import sandpool` stays quick.
"""
