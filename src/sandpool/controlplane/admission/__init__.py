"""Decides what may be stored: applies structural schemas and the rules of each kind to objects.

Validation, pruning, defaulting and the error messages of Kubernetes belong here. Pure: no store, no clock, no I/O.
"""
