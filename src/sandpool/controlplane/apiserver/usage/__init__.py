"""What pods and nodes use, as `metrics.k8s.io` tells it.

What may live here: measurements in, documents out. Who measures is handed in.
"""
