"""A cluster on one machine, behind the same Api as a real one.

What may live here: the store, the rules of objects, admission, the REST server, and the few controllers that a cluster
itself runs (owner collection, namespace deletion, expiry of Events). Nothing here knows our controllers.
"""
