"""The runtime `process`: pods are plain processes of this machine. It isolates nothing and limits nothing.

What may live here: this runtime and the supervisor of its processes. It is for platforms without namespaces, and it shows that the isolation
tests can fail.
"""
