"""A Kubernetes API server on one machine: store, admission, object rules, REST, and the controllers that a cluster itself runs.

Garbage collection, namespace deletion, Event expiry, quota status and the data directory live here too. It knows neither our controllers nor
how pods are run.
"""
