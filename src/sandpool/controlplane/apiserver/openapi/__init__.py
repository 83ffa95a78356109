"""The OpenAPI v3 description of what is served, built from the routes and the schemas of the model.

Only descriptions of the server belong here, never its behaviour.
"""
