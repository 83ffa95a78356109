"""What hostile programs aim at: files, a process, listeners and shared memory that the test made, and may lose."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import secrets
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VICTIM = """
import ctypes, os, signal, sys
signal.signal(signal.SIGUSR1, lambda number, frame: os.write(1, b"hit "))
open_file = open(sys.argv[2]); folder = os.open("/", os.O_RDONLY)
kept = ctypes.create_string_buffer(sys.argv[1].encode()); spare = ctypes.create_string_buffer(8)
print(ctypes.addressof(kept), ctypes.addressof(spare), flush=True)
while sys.stdin.buffer.raw.read(1):
    pass
"""
_libc = ctypes.CDLL(None, use_errno=True)
IPC_PRIVATE_KEYS, IPC_CREAT, IPC_RMID = 2, 0o1000, 0


@dataclass
class Victim:
    """A process of the machine that says when somebody signals it."""

    process: subprocess.Popen[bytes]
    address: int
    spare: int

    def hits(self) -> str:
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        try:
            hits = os.read(self.process.stdout.fileno(), 4096).count(b"hit")
        except BlockingIOError:
            hits = 0
        gone = "the victim is gone" if self.process.poll() is not None else ""
        return gone or (f"the victim was hit {hits} times" if hits else "")


@contextlib.contextmanager
def victim(token: str, secret: Path) -> Iterator[Victim]:
    """In a group of its own, with the secret in its arguments, environment, memory and open files."""
    words = [sys.executable, "-I", "-S", "-c", VICTIM, token, str(secret)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"SECRET": token}, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            address, spare = (int(each) for each in process.stdout.readline().split())
            yield Victim(process, address, spare)
        finally:
            process.kill()


@dataclass
class Listeners:
    """They say the secret to whoever connects, and count."""

    token: str
    folder: Path
    port: int = 0
    api_port: int = 0
    datagram_port: int = 0
    abstract: str = ""
    heard: int = 0
    _servers: list[asyncio.Server] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self) -> None:
        first = _listen(socket.AF_INET, ("127.0.0.1", 0))
        self.port = first.getsockname()[1]
        api = _listen(socket.AF_INET, ("127.0.0.1", 0))
        self.api_port = api.getsockname()[1]
        self.abstract = f"sandpool-escape-{secrets.token_hex(8)}"
        made = [
            first,
            api,
            _listen(socket.AF_INET, ("127.255.255.254", self.port)),
            _listen(socket.AF_UNIX, f"\0{self.abstract}"),
            _listen(socket.AF_UNIX, str(self.folder / "socket")),
        ]
        os.chmod(self.folder / "socket", 0o777)
        with contextlib.suppress(OSError):  # a machine may have no IPv6
            made.append(_listen(socket.AF_INET6, ("::1", self.port)))
        for sock in made:
            self._servers.append(await asyncio.start_server(self._said, sock=sock))
        self._datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._datagrams.setblocking(False)
        self._datagrams.bind(("127.0.0.1", 0))
        self.datagram_port = self._datagrams.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._datagrams, self._answer)

    async def _said(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard += 1
        with contextlib.suppress(OSError):
            writer.write(self.token.encode())
            await writer.drain()
            await reader.read(4096)
        writer.close()

    def _answer(self) -> None:
        _, sender = self._datagrams.recvfrom(4096)
        self.heard += 1
        self._datagrams.sendto(self.token.encode(), sender)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
            await server.wait_closed()
        asyncio.get_running_loop().remove_reader(self._datagrams)
        self._datagrams.close()


def _listen(family: int, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(64)
    except BaseException:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def segment(token: str) -> Iterator[int]:
    """Shared memory of System V, for everybody, by its key."""
    key = secrets.randbelow(1 << 30) + 1
    number = _libc.shmget(key, ctypes.c_size_t(4096), IPC_CREAT | 0o666)
    assert number >= 0, os.strerror(ctypes.get_errno())
    _libc.shmat.restype = ctypes.c_void_p
    address = _libc.shmat(number, None, 0)
    ctypes.memmove(address, token.encode(), len(token))
    try:
        yield key
    finally:
        _libc.shmdt(ctypes.c_void_p(address))
        _libc.shmctl(number, IPC_RMID, None)


@contextlib.contextmanager
def queue(token: str) -> Iterator[str]:
    """A message queue with one message in it; no name where the kernel has none."""
    number = {"x86_64": (240, 242, 241), "aarch64": (180, 182, 181)}[os.uname().machine]
    name = f"sandpool-escape-{secrets.token_hex(8)}"
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    file = syscall(number[0], name.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
    if file < 0:
        yield ""
        return
    try:
        data = token.encode()
        assert syscall(number[1], file, data, ctypes.c_size_t(len(data)), 0, None) == 0
        yield name
    finally:
        os.close(file)
        syscall(number[2], name.encode())


def file_handle(path: Path) -> tuple[int, str]:
    """What names the file on its file system, whatever is mounted where."""
    buffer = ctypes.create_string_buffer((128).to_bytes(4, "little") + bytes(132))
    number = {"x86_64": 303, "aarch64": 264}[os.uname().machine]
    mount = ctypes.c_int()
    done = ctypes.CDLL(None).syscall(number, -100, os.fsencode(path), buffer, ctypes.byref(mount), 0)
    if done < 0:
        return 1, "00" * 8
    length, kind = (int.from_bytes(buffer.raw[at : at + 4], "little") for at in (0, 4))
    return kind, buffer.raw[8 : 8 + length].hex()


@dataclass
class Files:
    """A folder that everybody may read, so that nothing but the sandbox keeps a sandbox out."""

    folder: Path
    token: str

    def __post_init__(self) -> None:
        for name in ("", "shared", "read-only", "programs", "scratch"):
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name).chmod(0o777)
        self.secret = self.folder / "secret"
        self.victim = self.folder / "victim"
        self.programs = [self.folder / "programs" / name for name in ("env", "sh")]
        self.restore()

    def restore(self) -> None:
        self.secret.write_text(self.token)
        self.secret.chmod(0o644)
        for path in (self.victim, *self.programs, self.folder / "read-only" / "file"):
            path.write_text("untouched")
            path.chmod(0o666)
        for folder in ("shared", "read-only", "programs"):
            for name in ("absolute", "relative"):
                (self.folder / folder / name).unlink(missing_ok=True)
            (self.folder / folder / "absolute").symlink_to(self.secret)
            (self.folder / folder / "relative").symlink_to("../" * 30 + str(self.secret).lstrip("/"))

    def damage(self) -> str:
        """What is not as it was, and as it was again."""
        known = (self.victim, *self.programs, self.folder / "read-only" / "file")
        wrong = [str(path) for path in known if not path.exists() or path.read_text() != "untouched"]
        wrong += [str(path) for path in known if path.exists() and stat.S_IMODE(path.stat().st_mode) != 0o666]
        wrong += [] if self.secret.read_text() == self.token else [str(self.secret)]
        expected = {"programs": {"env", "sh"}, "read-only": {"file"}, "scratch": set(), "shared": set()}
        for name, usual in expected.items():
            extra = {
                path for path in (self.folder / name).iterdir() if path.name not in usual | {"absolute", "relative"}
            }
            wrong += [str(path) for path in extra]
            for path in extra:
                path.unlink()
        if wrong:
            self.restore()
        return f"changed: {', '.join(sorted(set(wrong)))}" if wrong else ""


@contextlib.asynccontextmanager
async def listening(token: str, folder: Path) -> AsyncIterator[Listeners]:
    made = Listeners(token, folder)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
