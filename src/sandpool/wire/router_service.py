"""Where clients of a cluster look for its router. The names are the contract's: existing clients have them built in."""

from __future__ import annotations

from typing import Final

NAMESPACE: Final = "agent-sandbox-system"
SERVICE: Final = "sandbox-router-svc"
PORT: Final = 8080
