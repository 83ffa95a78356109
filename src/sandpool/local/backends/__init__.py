"""Ways to run a pod on this machine, all behind the contract of base.py.

What may live here: what starts, stops and looks into sandboxes. A backend knows nothing of the API server or of statuses.
"""
