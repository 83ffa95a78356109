"""The agent of one node: pods that the API server has become pods that a backend runs, and their status tells how they are.

What may live here: placing pods on this node, deciding what a pod needs next, writing its status, keeping the node alive. How a
pod is really run is the backend's.
"""
