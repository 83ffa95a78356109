"""The program of the fork-server, which forks sandboxes with boxd in each. It loads nothing else of Sandpool."""

from __future__ import annotations

from sandpool.boxd.forked import rehearse, serve_forked
from sandpool.node.runtimes.namespaces.forked.forkserver import main


def run() -> None:
    rehearse()
    main(serve_forked)
