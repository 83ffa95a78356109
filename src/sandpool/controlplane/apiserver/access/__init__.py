"""Credentials on disk: certificates, keys and tokens, and the kubeconfig for clients.

Creating, storing and verifying secrets belongs here. Nothing here knows HTTP.
"""
