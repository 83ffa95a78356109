"""The file system of the data directory: how full it is, the reserve kept for the API, and which pods use more than they may.

What may live here: measuring, deciding and evicting because of disk space. It asks pods through `Occupant` and knows no runtime.
"""
