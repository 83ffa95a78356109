"""Reading the protobuf bodies that newer kubectl versions send for Kubernetes' own kinds. Nothing is ever answered in it.

What may live here: the wire format and the table of fields (fields.json, made by tools/kubernetes_protobuf.py).
"""
