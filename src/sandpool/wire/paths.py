"""Where boxd serves what."""

from __future__ import annotations

from typing import Final

BASE: Final = "/box/v1"
HEALTH: Final = f"{BASE}/health"
PROCESSES: Final = f"{BASE}/processes"
FILES: Final = f"{BASE}/files"
PORTS: Final = f"{BASE}/ports"

TCP_UPGRADE: Final = "sandpool-tcp"
"""The protocol of a connection that was upgraded to a plain byte stream to a port inside."""

# What the router serves itself, when no header names a sandbox
ROUTER_HEALTH: Final = "/healthz"
TOKENS: Final = "/router/v1/tokens"
"""POST {"namespace", "sandbox", "uid"?, "port"?, "seconds"?} answers 201 {"token", "expires", "url"?}: a signed token for that sandbox (and
port) alone; with a port, also the address that carries it."""
PORT_URL: Final = "/port"
"""/port/TOKEN/PATH is PATH at the port that the token names: an address that needs no header."""
