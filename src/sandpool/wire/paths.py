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
