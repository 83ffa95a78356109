"""What everything else stands on: the root of all errors, clocks, backoff, rate limits, fairness between tenants, secrets.

What may live here: small mechanisms that know nothing of Kubernetes or of sandboxes. It imports nothing of ours.
"""
