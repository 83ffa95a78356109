"""The SDK for programs without an event loop: generated from _async/ by tools/unasync.py, all but transport.py."""
