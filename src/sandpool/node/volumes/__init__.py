"""Volumes that pods mount: created, filled, kept, measured and removed.

What may live here: turning a volume's specification into a path on this machine. The runtimes mount it.
"""
