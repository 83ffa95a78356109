"""A Kubernetes API server on one machine: the store, admission, the rules of objects, REST, and the data directory.

What may live here: what a cluster itself does with objects (garbage collection, the end of namespaces, expiry of Events included). It
knows neither our controllers nor how pods are run.
"""
