"""What can go wrong with a measurement itself, in words for whoever started it."""

from __future__ import annotations

from sandpool.base.errors import SandpoolError


class LoadError(SandpoolError):
    """The run cannot start, go on or be read; the message names what and the next step."""
