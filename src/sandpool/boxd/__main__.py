"""`python -m sandpool.boxd`: the daemon in a container."""

from __future__ import annotations

from sandpool.boxd.command import main

if __name__ == "__main__":
    main()
