"""The SDK for programs without an event loop, generated from _async/ by tools/unasync.py: do not edit.

Only this file, transport.py and sync_primitives.py are written by hand.
"""
