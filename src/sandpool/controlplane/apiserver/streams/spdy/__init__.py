"""The server side of SPDY/3.1, as far as Kubernetes clients use it: frames, a pure session, and an open connection.

Nothing here knows what the streams carry.
"""
