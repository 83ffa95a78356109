"""What is installed on a Kubernetes cluster, and what a local one begins with: manifests, permissions, the first pool.

What may live here: objects as plain values, and the check that a cluster can hold them. `deploy/` is generated from it.
"""
