"""The nouns: frozen structs and pure functions over them.

What may live here: types of the wire and answers about them. No I/O, no clock, no randomness: time and
random bits are arguments. Everything else may import this package; it imports nothing of ours.
"""
