"""The store of the API server: a log of keys and bytes with revisions, compare-and-swap, snapshots and watches.

Durability, ordering, backup and repair belong here. The store knows no kinds and never decodes a value.
"""
