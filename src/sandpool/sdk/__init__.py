"""The client library: Sandbox and AsyncSandbox, claims, commands and files.

The client side of claims and of boxd may live here. _async/ is the source, _sync/ is generated from it by tools/unasync.py, and both
share values, errors and configuration. Nothing heavy may: it needs the standard library, h11 and what kube/ reads configuration
with, so that `import sandpool` stays quick.
"""
