"""Talking to an API server: the Api protocol, its errors, the HTTP adapter, kubeconfig and watch parsing.

What may live here: the port that everything above sees, and its adapter to a remote server. It knows no controllers.
"""
