"""Who may come in: certificates, keys and tokens on disk, and the kubeconfig that hands them to clients.

What may live here: secrets, how they are made, kept and proved. Nothing here knows HTTP.
"""
