"""The agent of one node: it runs the node's pods through a backend and publishes their status.

What may live here: placing pods on this node, deciding what a pod needs next, probes, pod status, the Node object and its heartbeat.
What does not: how pods are run, which is up to the backend.
"""
