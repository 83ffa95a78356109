"""ResourceQuota: what each object uses, what a quota allows, and what a namespace uses now.

What may live here: the rules of Kubernetes' quota admission (pure), and the usage that they are checked against.
"""
