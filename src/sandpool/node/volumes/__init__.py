"""Folders and files that pods mount: made, filled, kept, measured and removed.

What may live here: turning a volume's description into a path on this machine. Mounting it is the backends'.
"""
