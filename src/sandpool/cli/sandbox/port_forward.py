"""`sandpool port-forward`: forwards local ports to a sandbox, each connection as its own byte stream through the router."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sandpool.base.errors import SandpoolError
from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import ClusterFlags
from sandpool.cli.completion import claims
from sandpool.cli.console import Console, Terminal
from sandpool.cli.error_messages import describe_error
from sandpool.cli.exits import FAILED, USAGE, Exit
from sandpool.cli.objects.resolve import plane_of
from sandpool.cli.sandbox.arguments import Forward, forward
from sandpool.kube.errors import Unreachable
from sandpool.wire.paths import PORTS, TCP_UPGRADE

if TYPE_CHECKING:
    from sandpool.sdk._sync.data_plane import DataPlane
    from sandpool.sdk._sync.exchange import ByteStream

PIECE = 1 << 16
MOST = 256
"""Connections at once; another one waits."""
GRACE = 1.0
"""Seconds for open connections to finish at the end."""


@dataclass(frozen=True, slots=True)
class PortForward:
    name: str
    forwards: tuple[Forward, ...]
    address: str = "127.0.0.1"

    def validate(self) -> None:
        if not self.forwards:
            raise Exit(USAGE, "name the ports: LOCAL:REMOTE, such as 8080:80, or one PORT for both")

    def run(self, cluster: Cluster, console: Console, stop: threading.Event | None = None) -> None:
        """Runs until interrupted, or until `stop`."""
        plane = plane_of(cluster, self.name)
        with _listening(self.address, self.forwards) as listeners:
            for listener, one in zip(listeners, self.forwards, strict=True):
                host, port = listener.getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                console.write(f"{shown}:{port}\n")
                console.say(f"{shown}:{port} leads to port {one.remote} of {self.name}, until Ctrl-C")
            remotes = dict(zip(listeners, (one.remote for one in self.forwards), strict=True))
            Forwarder(plane, console).serve(remotes, stop or threading.Event())


@dataclass(slots=True)
class Forwarder:
    """Accepts connections on local ports and forwards each in a thread."""

    plane: DataPlane
    console: Console
    _room: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(MOST))
    _open: set[socket.socket] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, remotes: dict[socket.socket, int], stop: threading.Event) -> None:
        threads: list[threading.Thread] = []
        try:
            while not stop.is_set():
                for listener in select.select(list(remotes), [], [], 0.2)[0]:
                    self._room.acquire()
                    try:
                        client, _ = listener.accept()
                    except OSError:  # the client hung up already
                        self._room.release()
                        continue
                    threads = [thread for thread in threads if thread.is_alive()]
                    threads.append(
                        threading.Thread(target=self._forward, args=(client, remotes[listener]), daemon=True)
                    )
                    threads[-1].start()
        finally:
            with self._lock:
                for client in self._open:
                    with suppress(OSError):
                        client.shutdown(socket.SHUT_RDWR)
            end = time.monotonic() + GRACE
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))

    def _forward(self, client: socket.socket, port: int) -> None:
        with self._lock:
            self._open.add(client)
        try:
            with client, self.plane.upgrade(f"{PORTS}/{port}", TCP_UPGRADE, timeout=30.0) as (stream, first):
                both_ways(client, stream, first)
        except Unreachable as error:
            self.console.say(f"sandpool: port {port}: the connection was lost ({error}); open it again")
        except SandpoolError as error:
            self.console.say(f"sandpool: port {port}: {describe_error(error)}; is something listening there?")
        finally:
            with self._lock:
                self._open.discard(client)
            self._room.release()


def both_ways(client: socket.socket, stream: ByteStream, first: bytes) -> None:
    """Copies until both sides have closed, or one of them fails."""
    from sandpool.sdk._sync.transport import Transport

    def upwards() -> None:
        with suppress(OSError, Unreachable):
            while data := client.recv(PIECE):
                stream.write(data)
            if isinstance(stream, Transport):  # a Tunnel cannot be half closed
                stream.end()

    thread = threading.Thread(target=upwards, daemon=True)
    thread.start()
    try:
        with suppress(OSError):
            if first:
                client.sendall(first)
            while data := stream.read(PIECE):
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)
    except BaseException:
        with suppress(OSError):  # wakes the local client, and the thread that reads from it
            client.shutdown(socket.SHUT_RDWR)
        raise
    finally:
        thread.join()


@contextmanager
def _listening(address: str, forwards: tuple[Forward, ...]) -> Iterator[list[socket.socket]]:
    listeners: list[socket.socket] = []
    try:
        for one in forwards:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            listener = socket.socket(family, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, one.local))
            except OSError as error:
                why = error.strerror or str(error)
                raise Exit(
                    FAILED, f"{address}:{one.local}: {why}; choose another port, or :{one.remote} for a free one"
                ) from error
            listener.listen(128)
        yield listeners
    finally:
        for listener in listeners:
            listener.close()


def port_forward(
    name: Annotated[str, Parameter(completer=claims, help="A claim, or sandbox/NAME.")],
    /,
    *ports: Annotated[
        str, Parameter(help="LOCAL:REMOTE, PORT for the same on both sides, or :REMOTE for a free local port.")
    ],
    address: Annotated[
        str, Parameter(help="Address to listen on. Anything but loopback is reachable from other machines.")
    ] = "127.0.0.1",
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Forward local ports to a sandbox, until Ctrl-C. Prints the addresses to connect to.

    Works for any protocol over TCP, and for servers that listen only on the sandbox's loopback.
    """
    options = PortForward(name, tuple(forward(one) for one in ports), address)
    options.validate()
    with connected(where) as cluster:
        options.run(cluster, Terminal())
