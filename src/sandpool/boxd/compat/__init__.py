"""The protocols of existing sandbox runtimes, so that their clients work unchanged.

What may live here: translating those protocols to boxd's own processes and files. It adds no capability that boxd does not have.
"""
