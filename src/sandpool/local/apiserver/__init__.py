"""The REST surface: HTTP in, objects out.

What may live here: routes, discovery, OpenAPI, tables, authentication, limits, TLS. The rules of objects are not here
but in local/objects; a request passes through http -> authenticate -> route -> authorise -> handler -> Objects.
"""
