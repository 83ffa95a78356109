"""The proxy through which a sandbox reaches the outside: HTTP/1.1, forward requests and CONNECT.

What may live here: reading what a hostile client asks for, judging the address that is really connected to, and carrying bytes
within limits. It runs in the main process; a sandbox only has the other end of a socket.
"""
