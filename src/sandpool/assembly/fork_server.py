"""The program of the fork-server: sandboxes, each with boxd inside. Nothing else of the product is loaded into it."""

from __future__ import annotations

from sandpool.boxd.forked import serve_forked
from sandpool.local.backends.namespaces.forked.forkserver import main

if __name__ == "__main__":
    main(serve_forked)
