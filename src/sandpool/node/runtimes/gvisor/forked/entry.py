"""The program of gvisor's own fork-server: forks keepers of sandboxes, beside what every worker can do."""

from __future__ import annotations

import socket

from sandpool.node.runtimes.gvisor.forked.keeper import Keeper
from sandpool.node.runtimes.namespaces.forked.forkserver import main as serve
from sandpool.node.runtimes.namespaces.forked.frames import Message


def keep(sock: socket.socket, order: Message, files: list[int]) -> bool:
    """Whether it was an order for a keeper; then it has been carried out, to the end of the sandbox."""
    if order["do"] != "keep":
        return False
    Keeper(sock, order).run()
    return True


def main() -> None:
    serve(also=keep)


if __name__ == "__main__":
    main()
