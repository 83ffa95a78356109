"""The REST surface: HTTP in, objects out.

What may live here: routes, discovery, OpenAPI, tables, authentication, limits, TLS. The rules of objects are not here
but in controlplane/objects. A request passes connection -> app -> request (what is asked) -> authenticate -> authorise -> dispatch ->
handlers -> Objects, and its answer goes back through answer (whole or in pieces) or handlers/watch (a stream of events).
"""
