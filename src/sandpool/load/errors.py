"""The error of this package."""

from __future__ import annotations

from sandpool.base.errors import SandpoolError


class LoadError(SandpoolError):
    """The run cannot start or continue, or a result cannot be read; the message has the cause and the next step."""
