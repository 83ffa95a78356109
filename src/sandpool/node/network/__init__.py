"""The only ways into and out of a sandbox: its declared ports, and the egress that NetworkPolicies allow.

What may live here: addresses, listeners on this machine, policies, the egress proxy. All of it runs outside the sandbox, where nothing
inside can change it.
"""
