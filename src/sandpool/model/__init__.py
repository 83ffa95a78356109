"""The data model: kinds as frozen structs, and pure functions about them.

Wire types, schemas, selectors, patches, names and quantities live here. No I/O, no clock, no randomness: time and random bits are arguments.
Everything else may import this package; it imports nothing of ours.
"""
