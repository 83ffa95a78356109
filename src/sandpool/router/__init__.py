"""The router: authenticates a request, finds its sandbox, and copies the bytes both ways.

Everything between a client's connection and a connection to a sandbox may live here. It looks sandboxes up by name in a cache
that app/ fills, and reaches them through ports (ports.py) that app/ implements on one machine and kubernetes.py on a cluster; it never writes a claim or a pod.
"""
