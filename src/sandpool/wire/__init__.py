"""Words that both ends of a connection to a sandbox share: frames, paths, error codes, WebSocket messages.

What may live here: values and pure functions of the standard library alone. It ships into every sandbox together with boxd.
"""
