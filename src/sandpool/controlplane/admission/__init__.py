"""What may be stored: structural schemas applied to objects. Pure: no store, no clock, no I/O.

What may live here: validation, pruning, defaulting and the words that Kubernetes has for each failure.
"""
