"""What both ends of a connection to a sandbox share: paths, headers, codes, frames, HTTP/1.1 heads and bodies, WebSocket, tar.

What may live here: values and pure functions that use only the standard library, because this package ships into every sandbox together
with boxd. Sockets, files, clocks and decisions may not.
"""
