"""Metrics and traces of the controllers, read off the caches and the assigner.

What may live here: what counts and times objects. No controller depends on it.
"""
