"""HTTP/1.1 as far as boxd needs it: heads, bodies that stream both ways, upgrades.

What may live here: bytes of a connection to requests, and responses to bytes. It knows no routes, processes or files.
"""
