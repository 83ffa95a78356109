"""A program in a separate container of the sandbox: relays connections from the egress port to a unix socket of the machine.

It makes no decisions; the proxy outside does. Its first argument is the port, its second the path of the socket.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time

MOST = 64  # connections at a time; others wait
BACKLOG = 128
CHUNK = 65536


def carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            target.sendall(data)
    for sock, how in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):
            sock.shutdown(how)


def serve(client: socket.socket, path: str, free: threading.Semaphore) -> None:
    try:
        with client, socket.socket(socket.AF_UNIX) as proxy:
            proxy.connect(path)
            back = threading.Thread(target=carry, args=(proxy, client))
            back.start()
            carry(client, proxy)
            back.join()
    except (OSError, RuntimeError):
        pass
    finally:
        free.release()


def accept(listener: socket.socket, path: str, free: threading.Semaphore) -> None:
    free.acquire()
    try:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, path, free), daemon=True).start()
    except (OSError, RuntimeError, MemoryError):
        free.release()
        time.sleep(0.1)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    threading.stack_size(256 * 1024)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(sys.argv[-2])))
    listener.listen(BACKLOG)
    os.write(1, b"+")
    free = threading.Semaphore(MOST)
    while True:
        accept(listener, sys.argv[-1], free)


if __name__ == "__main__":
    main()
