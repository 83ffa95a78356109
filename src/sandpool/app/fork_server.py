"""The program of the fork-server: sandboxes, each with boxd inside. Nothing else of the product is loaded into it."""

from __future__ import annotations

from sandpool.boxd.forked import rehearse, serve_forked
from sandpool.node.runtimes.namespaces.forked.forkserver import main


def run() -> None:
    rehearse()
    main(serve_forked)
