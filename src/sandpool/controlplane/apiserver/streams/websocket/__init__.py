"""WebSocket (RFC 6455), the server's side: a pure codec and one open connection."""
