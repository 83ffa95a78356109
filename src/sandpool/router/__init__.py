"""The way in: who asks, which sandbox is meant, and the bytes both ways.

What may live here: everything between a connection of a client and a connection to a sandbox. It knows sandboxes by name from a
cache that somebody else fills, and how to reach them through a port that somebody else implements (ports.py).
"""
