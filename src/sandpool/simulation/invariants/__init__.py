"""Invariants of a simulated run: what must never be true, checked at every step at constant cost, and what must be true at the end.

What may live here: judgements about the steps and the end of a run. They read the world and change nothing.
"""
