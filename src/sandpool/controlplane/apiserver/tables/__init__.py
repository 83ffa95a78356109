"""What `kubectl get` shows: objects as rows of a meta.k8s.io/v1 Table.

What may live here: columns and cells, from decoded objects to text. Pure.
"""
