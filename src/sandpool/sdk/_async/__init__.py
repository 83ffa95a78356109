"""The source of the SDK: what the client does, written with await. _sync/ is generated from it by tools/unasync.py, so edit here.

Only transport.py and sync_primitives.py may know the difference between the two; they exist by hand in both.
"""
