"""`sandpool port-forward`: ports of a sandbox as ports of this machine. Each connection is a byte stream of its own through the router."""

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
from sandpool.cli.completing import claims
from sandpool.cli.console import Console, Terminal
from sandpool.cli.exits import FAILED, USAGE, Exit
from sandpool.cli.failures import told
from sandpool.cli.inside.places import Forward, forward
from sandpool.cli.inside.reach import plane_of
from sandpool.kube.errors import Unreachable
from sandpool.wire.paths import PORTS, TCP_UPGRADE

if TYPE_CHECKING:
    from sandpool.sdk._sync.data_plane import DataPlane
    from sandpool.sdk._sync.line import Line

PIECE = 1 << 16
MOST = 256
"""Connections at once; another one waits."""
GRACE = 1.0
"""Seconds for connections to say what they still have to say, at the end."""


@dataclass(frozen=True, slots=True)
class PortForward:
    name: str
    forwards: tuple[Forward, ...]
    address: str = "127.0.0.1"

    def validate(self) -> None:
        if not self.forwards:
            raise Exit(USAGE, "say which ports: LOCAL:REMOTE, such as 8080:80, or one PORT for both")

    def run(self, cluster: Cluster, console: Console, stop: threading.Event | None = None) -> None:
        """Until interrupted, or until `stop`."""
        plane = plane_of(cluster, self.name)
        with _listening(self.address, self.forwards) as listeners:
            for listener, one in zip(listeners, self.forwards, strict=True):
                host, port = listener.getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                console.write(f"{shown}:{port}\n")
                console.say(f"{shown}:{port} leads to port {one.remote} of {self.name}, until Ctrl-C")
            remotes = dict(zip(listeners, (one.remote for one in self.forwards), strict=True))
            Lines(plane, console).serve(remotes, stop or threading.Event())


@dataclass(slots=True)
class Lines:
    """The connections there are."""

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
                    except OSError:  # it has gone already
                        self._room.release()
                        continue
                    threads = [thread for thread in threads if thread.is_alive()]
                    threads.append(threading.Thread(target=self._carry, args=(client, remotes[listener]), daemon=True))
                    threads[-1].start()
        finally:
            with self._lock:
                for client in self._open:
                    with suppress(OSError):
                        client.shutdown(socket.SHUT_RDWR)
            end = time.monotonic() + GRACE
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))

    def _carry(self, client: socket.socket, port: int) -> None:
        with self._lock:
            self._open.add(client)
        try:
            with client, self.plane.upgrade(f"{PORTS}/{port}", TCP_UPGRADE, timeout=30.0) as (line, first):
                _both_ways(client, line, first)
        except Unreachable as error:
            self.console.say(f"sandpool: port {port}: the connection was lost ({error}); open it again")
        except SandpoolError as error:
            self.console.say(f"sandpool: port {port}: {told(error)}; is something listening there?")
        finally:
            with self._lock:
                self._open.discard(client)
            self._room.release()


def _both_ways(client: socket.socket, line: Line, first: bytes) -> None:
    """Until both sides have said all they had to say, or one of them is gone."""
    from sandpool.sdk._sync.transport import Transport

    def upwards() -> None:
        with suppress(OSError, Unreachable):
            while data := client.recv(PIECE):
                line.write(data)
            if isinstance(line, Transport):  # the other kind of line cannot be closed in one direction
                line.end()

    thread = threading.Thread(target=upwards, daemon=True)
    thread.start()
    try:
        with suppress(OSError):
            if first:
                client.sendall(first)
            while data := line.read(PIECE):
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)
    except BaseException:
        with suppress(OSError):  # whoever waits for an answer here, and the thread that waits for them
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
        str, Parameter(help="LOCAL:REMOTE, PORT for the same on both sides, or :REMOTE for a free one here.")
    ],
    address: Annotated[str, Parameter(help="Where to listen. Anything but loopback lets others in.")] = "127.0.0.1",
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Make ports of a sandbox ports of this machine, until Ctrl-C. Prints the addresses to connect to.

    Any protocol over TCP goes through. What listens in the sandbox may listen on its loopback only.
    """
    options = PortForward(name, tuple(forward(one) for one in ports), address)
    options.validate()
    with connected(where) as cluster:
        options.run(cluster, Terminal())
