"""The rules of objects, whoever asks: identity, revisions, generation, finalizers, preconditions, patches, deletion.

What may live here: what a cluster does with objects beyond storing bytes, and before any wire. Both the REST server and
the in-process Api stand on it.
"""
