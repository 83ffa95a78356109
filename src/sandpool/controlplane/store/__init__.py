"""The log that everything is written to: revisions, compare-and-swap, snapshots and watches over keys and bytes.

What may live here: durability and order. The store knows no kinds and never looks inside a value.
"""
