"""Builds the local cluster, the controller process and the router process from their parts. No other package knows all parts.

What may live here: construction, wiring and lifetimes. Decisions and mechanisms belong to the parts.
"""
