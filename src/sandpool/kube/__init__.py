"""Talking to an API server: the Api port, its errors, interceptors, the priority policy, the HTTP adapter, kubeconfig and watch parsing.

What may live here: the port that everything above uses, wrappers of it, and its adapter to a remote server. It knows no controllers.
"""
