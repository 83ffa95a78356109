"""What a boxd is told once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Settings:
    root: str = "/"  # files and working folders are confined to it
    home: str = ""  # where relative paths begin and commands start; empty: the root
    token: str = field(default="", repr=False)  # empty: whoever reaches the socket may use it
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # of what it starts
    shown: str = "SANDBOX_"  # which variables /v1/metadata shows
    patience: float = 300.0  # seconds for a command of the older protocol that names no limit
    memory: int | None = None  # open, tells how many processes ended for want of memory (processes/memory.py)
