"""The `sandpool` command in a process of its own, forked from one that has the interpreter and the packages of others ready.

What a command needs of ours it still imports itself, as in a new interpreter. `support.product.cluster.sandpool` uses this where a folder's conftest
has it prepared, and starts a new interpreter elsewhere, and for whatever a fork cannot show.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

# What most commands import of others, and what every command begins with.
READY = (
    "ctypes", "cyclopts.help", "decimal", "docstring_parser", "encodings.idna", "fcntl", "h11", "hashlib", "msgspec", "msgspec.inspect",
    "msgspec.json", "msgspec.yaml", "rich.console", "rich.markdown", "rich.table", "ssl", "subprocess", "textwrap", "typing_extensions",
    "uuid", "yaml", "sandpool.cli.main",
)  # fmt: skip
# What a cluster consists of. Its commands need little of that.
CLUSTER = (
    "sandpool.cli.up",
    "sandpool.app.local_cluster",
    "sandpool.telemetry.log",
    "sandpool.telemetry.otel",
    "uvloop",
)
# Variables that an interpreter, or the loader, reads when it starts.
EARLY = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "MALLOC_")


class Prepared:
    """A process that waits to be forked. Commands may run side by side."""

    now: Prepared | None = None

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._socket, theirs = socket.socketpair()
        folders = [str(Path(__file__).parents[2]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.product.forked_commands", str(theirs.fileno())], pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
            )  # fmt: skip

    @staticmethod
    def fits(options: Mapping[str, Any]) -> bool:
        """Whether a fork is as good as a new interpreter."""
        early = [_early(each) for each in (os.environ, options.get("env") or os.environ)]
        return early[0] == early[1] and not set(options) - {"env", "cwd", "input"}

    def run(self, arguments: Sequence[str], timeout: float, options: Mapping[str, Any]) -> tuple[int, bytes, bytes]:
        """Its exit code, what it wrote and what it said. Without any `input` it reads from /dev/null."""
        pipes, given = [os.pipe() for _ in range(3)], options.get("input")
        theirs, ours = (os.open(os.devnull, os.O_RDONLY), None) if given is None else os.pipe()
        try:
            self._ask(arguments, options, [theirs, *(write for _, write in pipes)], detached=False)
        finally:
            for each in (theirs, *(write for _, write in pipes)):
                os.close(each)
        with _writing(ours, given or b""):
            written, said, ended = _read([read for read, _ in pipes], timeout, arguments)
        return os.waitstatus_to_exitcode(int(ended.split()[1])), written, said

    def start(self, arguments: Sequence[str], log: Path, options: Mapping[str, Any]) -> int:
        """The process of a command that runs on by itself, in a session of its own; what it says is added to the log."""
        reading, writing = os.pipe()
        with open(reading, "rb") as told, open(os.devnull, "rb") as nothing, log.open("ab") as said:
            try:
                self._ask(arguments, options, [nothing.fileno(), said.fileno(), said.fileno(), writing], detached=True)
            finally:
                os.close(writing)
            return int(told.read())

    def _ask(
        self, arguments: Sequence[str], options: Mapping[str, Any], descriptors: Sequence[int], *, detached: bool
    ) -> None:
        environment, folder = dict(options.get("env") or os.environ), os.fspath(options.get("cwd") or os.getcwd())
        request = json.dumps([list(arguments), environment, folder, detached]).encode()
        with self._asking:
            socket.send_fds(self._socket, [len(request).to_bytes(8, "big")], list(descriptors))
            self._socket.sendall(request)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """For as long as the first who asks needs it; others share it meanwhile."""
    if Prepared.now is not None:
        yield
        return
    made = Prepared.now = Prepared()
    try:
        yield
    finally:
        Prepared.now = None
        made.close()


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(EARLY)}


@contextlib.contextmanager
def _writing(pipe: int | None, given: bytes) -> Iterator[None]:
    """Beside what is done meanwhile: a command may write before it has read all."""

    def write(pipe: int) -> None:
        with contextlib.suppress(BrokenPipeError), open(pipe, "wb", buffering=0) as file:
            left = memoryview(given)
            while left:
                left = left[file.write(left) :]

    if pipe is None:
        yield
        return
    writer = threading.Thread(target=write, args=(pipe,))
    writer.start()
    try:
        yield
    finally:
        writer.join()


def _read(pipes: Sequence[int], timeout: float, arguments: Sequence[str]) -> list[bytes]:
    """All of them, until nobody holds the other ends; the last tells the process, for one that takes too long."""
    read, end = dict.fromkeys(pipes, b""), time.monotonic() + timeout
    with contextlib.ExitStack() as closing, selectors.DefaultSelector() as waiting:
        for pipe in pipes:
            closing.callback(os.close, pipe)
            waiting.register(pipe, selectors.EVENT_READ)
        while waiting.get_map():
            for key, _ in waiting.select(max(0.0, end - time.monotonic())):
                part = os.read(key.fd, 1 << 16)
                read[key.fd] += part
                if not part:
                    waiting.unregister(key.fd)
            if time.monotonic() > end:
                with contextlib.suppress(ProcessLookupError, IndexError):
                    os.kill(int(read[pipes[-1]].split()[0]), signal.SIGKILL)
                raise subprocess.TimeoutExpired(["sandpool", *arguments], timeout)
    return list(read.values())


def _serve(server: socket.socket) -> None:
    """Returns in the process of one command, which is then as it would be after its first line; ends where nobody asks any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries who waited
    while True:
        size, descriptors, _, _ = socket.recv_fds(server, 8, 4)
        if not size:
            sys.exit()
        told = server.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
        arguments, environment, folder, detached = json.loads(told)
        if os.fork() == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _run(descriptors, detached)
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(folder)
            sys.argv[1:] = arguments
            return
        for each in descriptors:
            os.close(each)


def _run(descriptors: Sequence[int], detached: bool) -> None:
    """Returns in a child, with its own input and outputs; the parent waits for that, tells how it ended, and ends. Nobody waits for one that is
    detached, and its session is its own."""
    *standard, ending = descriptors
    child = os.fork()
    if child == 0:
        os.close(ending)
        if detached:
            os.setsid()
        for number, each in enumerate(standard):
            os.dup2(each, number)
            os.close(each)
        return
    for each in (0, 1, 2, *standard):
        os.close(each)
    os.write(ending, f"{child} ".encode())
    if not detached:
        os.write(ending, f"{os.waitpid(child, 0)[1]}".encode())
    os._exit(0)


def _main() -> NoReturn:
    for name in (*READY, *CLUSTER):
        importlib.import_module(name)
    gc.freeze()  # what is shared stays shared: no child walks over it
    _serve(socket.socket(fileno=int(sys.argv.pop())))
    from sandpool.cli.main import main

    main()


if __name__ == "__main__":
    _main()
