"""Isolated computers for AI agents, ready before they are asked for."""

from sandpool.version import __version__

__all__ = ["__version__"]
