"""ResourceQuota: what each object uses, what a quota allows, and what a namespace uses now.

What may live here: the rules of Kubernetes' quota admission (pure), and the count that they are asked with.
"""
