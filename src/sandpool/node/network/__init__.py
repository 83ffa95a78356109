"""The only ways into and out of a sandbox: declared ports, and what its NetworkPolicies let out.

What may live here: addresses, listeners on this machine, policies, the egress proxy. Everything of it runs outside of the
sandbox, where nothing inside can change it.
"""
