"""The OpenAPI v3 description of what is served, made from the routes and the schemas of the model.

What may live here: documents about the server, never behaviour of it.
"""
