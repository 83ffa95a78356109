"""The semantics of API objects: identity, revisions, generation, finalizers, preconditions, patches, deletion.

What may live here: what an API server does with objects, between the store and the wire. The REST server and
the in-process Api both use it. Controllers are called only through the hooks of kube/inline.py.
"""
