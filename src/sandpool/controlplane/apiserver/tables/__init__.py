"""The output of `kubectl get`: objects as rows of a meta.k8s.io/v1 Table.

Columns and cells belong here, from decoded objects to text. Pure.
"""
