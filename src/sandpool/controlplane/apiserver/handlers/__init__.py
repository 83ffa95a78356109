"""The handlers of requests: one module per group of verbs, each from a Call to a Response.

Handlers read options and bodies, call Objects and choose the form of the response. The semantics of objects belong to controlplane/objects.
"""
