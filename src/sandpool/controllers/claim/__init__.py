"""The SandboxClaim controller: hands a claim a warm member or starts a sandbox for it, and keeps it until the claim ends.

What may live here: decisions about claims and the writes that carry them out. It sees kube.Api, caches, the assigner and protection.py only.
"""
