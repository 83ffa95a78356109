"""The REST API of the API server, over HTTP/1.1.

Connections, authentication, authorization, routes, discovery, OpenAPI, tables and limits belong here; the semantics of objects do not (see
controlplane/objects). A request passes connection -> app -> request -> auth -> dispatch -> handlers -> Objects, and its response goes back
through response (whole or in pieces) or handlers/watch (a stream of events).
"""
