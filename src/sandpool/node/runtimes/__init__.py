"""What isolates the processes of a pod: Linux namespaces, gVisor, plain processes, and a fake that starts none.

What may live here: making sandboxes, starting programs in them, ending them. A runtime knows nothing of the API server or of pod statuses.
"""
