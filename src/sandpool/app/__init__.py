"""The only place that knows all parts: it builds the local cluster, the controller process and the router process out of them.

What may live here: construction, wiring and lifetimes. Decisions and mechanisms belong to the parts.
"""
