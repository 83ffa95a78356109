"""The SandboxWarmPool controller: keeps a number of unclaimed sandboxes running.

What may live here: decisions about a pool's members and the writes that carry them out. It sees kube.Api, caches and the assigner only.
"""
