"""Headers that say which sandbox a request is for. Those of the contract are spelled as its clients send them."""

from __future__ import annotations

from typing import Final

SANDBOX: Final = "X-Sandbox-ID"
"""The name of a Sandbox (not of a claim)."""
NAMESPACE: Final = "X-Sandbox-Namespace"
PORT: Final = "X-Sandbox-Port"
TIMEOUT: Final = "X-Sandbox-Timeout"
"""Seconds that the client waits at most."""
POD_IP: Final = "X-Sandbox-Pod-IP"
"""Sent by clients of the contract; never believed."""
UID: Final = "X-Sandbox-UID"
"""Of the Sandbox: another object of the same name is not meant."""
REQUEST_ID: Final = "X-Request-ID"
INCARNATION: Final = "X-Sandbox-Incarnation"
"""Which run of boxd is meant, or answers: wire/incarnation.py. The router carries it both ways as any other header."""

ROUTING: Final = frozenset(name.lower() for name in (SANDBOX, NAMESPACE, PORT, TIMEOUT, POD_IP, UID))
"""For the router alone: a sandbox does not see them."""

DEFAULT_NAMESPACE: Final = "default"
DEFAULT_PORT: Final = 8888
