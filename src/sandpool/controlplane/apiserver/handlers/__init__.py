"""What each request does: one module per kind of request, each from a Call to a Reply.

What may live here: reading options and bodies, asking Objects, choosing the form of the answer. No rules of objects.
"""
