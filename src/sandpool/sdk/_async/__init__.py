"""The source of the SDK. _sync/ is generated from it: edit here, then run tools/unasync.py.

What may live here: what the client does, written with await. transport.py holds all that is different without it.
"""
