"""The HTTP/1.1 proxy through which a sandbox reaches the outside: forward requests and CONNECT.

What may live here: parsing hostile requests, checking the address that is really connected to, and relaying bytes within limits. It runs in
the main process; a sandbox only has the other end of a socket.
"""
