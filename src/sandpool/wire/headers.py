"""Headers that select the sandbox of a request. Those of the contract are spelled as its clients send them."""

from __future__ import annotations

from typing import Final

SANDBOX: Final = "X-Sandbox-ID"
"""The name of a Sandbox (not of a claim)."""
NAMESPACE: Final = "X-Sandbox-Namespace"
PORT: Final = "X-Sandbox-Port"
TIMEOUT: Final = "X-Sandbox-Timeout"
"""Maximum seconds that the client waits."""
POD_IP: Final = "X-Sandbox-Pod-IP"
"""Sent by clients of the contract, and never used: a client could name any address."""
UID: Final = "X-Sandbox-UID"
"""The uid of the Sandbox, so that the request cannot reach another object with the same name."""
REQUEST_ID: Final = "X-Request-ID"
INCARNATION: Final = "X-Sandbox-Incarnation"
"""In a request, the run of boxd that must serve it; in a response, the run that did (wire/incarnation.py). The router passes it on both ways,
like any other header."""

ROUTING: Final = frozenset(name.lower() for name in (SANDBOX, NAMESPACE, PORT, TIMEOUT, POD_IP, UID))
"""Headers for the router only. It removes them before it forwards a request to a sandbox."""

DEFAULT_NAMESPACE: Final = "default"
DEFAULT_PORT: Final = 8888
