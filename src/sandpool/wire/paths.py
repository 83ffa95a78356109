"""Paths that boxd and the router serve."""

from __future__ import annotations

from typing import Final

BASE: Final = "/box/v1"
HEALTH: Final = f"{BASE}/health"
PROCESSES: Final = f"{BASE}/processes"
FILES: Final = f"{BASE}/files"
PORTS: Final = f"{BASE}/ports"

TCP_UPGRADE: Final = "sandpool-tcp"
"""The Upgrade token for a plain byte stream to a port inside the sandbox."""

# Served by the router itself, if no header names a sandbox
ROUTER_HEALTH: Final = "/healthz"
TOKENS: Final = "/router/v1/tokens"
"""POST {"namespace", "sandbox", "uid"?, "port"?, "seconds"?} returns 201 {"token", "expires", "url"?}: a signed token for only that sandbox (and
port). With a port, the response also has a URL that contains the token."""
PORT_URL: Final = "/port"
"""/port/TOKEN/PATH is PATH at the port that the token names: a URL that works without headers."""
