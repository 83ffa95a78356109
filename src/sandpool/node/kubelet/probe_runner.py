"""Carries out probes and hooks. Whoever answers is hostile: what is read is bounded in time and size, and only shown cleaned."""

from __future__ import annotations

import asyncio
import shlex
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from sandpool.base.clock import Clock
from sandpool.base.errors import NodeError
from sandpool.kube.tls import agree_cheaply
from sandpool.model.metadata import Uid
from sandpool.node.backend import Backend, Command, ContainerPort, UnknownPod, Unsupported
from sandpool.node.kubelet.pods import NodeContainer
from sandpool.node.kubelet.probe_spec import (
    Action,
    ExecAction,
    Handler,
    HttpGetAction,
    HttpHeader,
    SleepAction,
    TcpSocketAction,
)
from sandpool.node.kubelet.probe_state import Result

MOST_OUTPUT = 10 * 1024
PAUSE = 0.02
"""Seconds between two pieces of what a command says beyond that. It is thrown away, and a command that says more than anybody can read
keeps nobody busy with it."""
_LONGEST_TEXT = 800
_LONGEST_LINE = 4096
_URL_SAFE = "/?&=%:@!$'()*+,;~#[]-._"


@dataclass(frozen=True, slots=True)
class Answer:
    result: Result
    text: str = ""  # why it failed, fit to be shown


@dataclass(frozen=True, slots=True)
class Asked:
    """Who is asked."""

    uid: Uid
    container: NodeContainer


class Asking:
    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock

    async def ask(self, asked: Asked, handler: Handler, timeout: float | None) -> Answer:
        """Never raises, and returns within the time."""
        action = handler.action
        if action is None:
            return Answer(Result.UNKNOWN, "it names no kind of probe that is supported")
        try:
            async with asyncio.timeout(timeout) as limit:
                return await self._carry_out(asked, action)
        except TimeoutError:
            if not limit.expired():
                return Answer(Result.FAILURE, "timed out")
            return Answer(Result.FAILURE, f"{_name(action)} timed out after {timeout:g}s")
        except Unsupported as error:
            return Answer(Result.UNSUPPORTED, error.message)
        except UnknownPod as error:
            return Answer(Result.UNKNOWN, error.message)
        except _Wrong as error:
            return Answer(Result.FAILURE, str(error))
        except NodeError as error:
            return Answer(Result.FAILURE, f"{_name(action)}: {shown(error.message)}")
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
            return Answer(Result.FAILURE, f"{_name(action)}: {shown(str(error)) or type(error).__name__}")

    async def _carry_out(self, asked: Asked, action: Action) -> Answer:
        match action:
            case ExecAction():
                return await self._exec(asked, action)
            case HttpGetAction():
                return await self._get(asked, action)
            case TcpSocketAction():
                (await self._backend.dial(asked.uid, _port(asked.container.ports, action.port))).close()
            case SleepAction():
                await self._clock.sleep(max(0.0, action.seconds))
        return Answer(Result.SUCCESS)

    async def _exec(self, asked: Asked, action: ExecAction) -> Answer:
        output = _Output(self._clock)
        end = await self._backend.exec(asked.uid, asked.container.name, Command(action.command), output)
        if end.code == 0:
            return Answer(Result.SUCCESS)
        said = shown(output.data.decode("utf-8", "replace"))
        return Answer(Result.FAILURE, said or f"{_name(action)} ended with exit code {end.code}")

    async def _get(self, asked: Asked, action: HttpGetAction) -> Answer:
        port = _port(asked.container.ports, action.port)
        request = _request(action, port)
        connection = await self._backend.dial(asked.uid, port)
        try:
            secure = _trusting() if action.scheme.upper() == "HTTPS" else None
            reader, writer = await asyncio.open_connection(
                sock=connection, limit=_LONGEST_LINE, ssl=secure, server_hostname="" if secure else None
            )
        except BaseException:
            connection.close()
            raise
        try:
            writer.write(request)
            status = _status(await reader.readuntil(b"\n"))
        finally:
            writer.transport.abort()  # nothing more is read, and nobody is waited for
        if 200 <= status < 400:
            return Answer(Result.SUCCESS)
        return Answer(Result.FAILURE, f"HTTP probe failed with statuscode: {status}")


class _Wrong(Exception):
    """What the spec says cannot be done."""


@dataclass(slots=True)
class _Output:
    """No input; the first part of the output."""

    clock: Clock
    data: bytearray = field(default_factory=bytearray)

    async def read(self) -> bytes:
        return b""

    async def write(self, stream: int, data: bytes) -> None:
        if len(self.data) >= MOST_OUTPUT:
            await self.clock.sleep(PAUSE)
        self.data += data[: max(0, MOST_OUTPUT - len(self.data))]

    async def resized(self) -> tuple[int, int]:
        await asyncio.Event().wait()
        raise AssertionError


def shown(text: str) -> str:
    """Fit for an event: one line, nothing that moves a cursor, not too long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _LONGEST_TEXT]).split())
    return line if len(line) <= _LONGEST_TEXT else line[:_LONGEST_TEXT] + "..."


def _port(ports: Sequence[ContainerPort], wanted: int | str) -> int:
    if isinstance(wanted, str) and not wanted.isdecimal():
        for port in ports:
            if port.name == wanted:
                return port.container_port
        raise _Wrong(f"the container has no port named {wanted!r}; name one of its ports, or write a number")
    number = int(wanted)
    if not 0 < number < 65536:
        raise _Wrong(f"{number} is no port; write one between 1 and 65535")
    return number


def _request(action: HttpGetAction, port: int) -> bytes:
    path = quote(action.path or "/", safe=_URL_SAFE)
    given = {header.name.lower() for header in action.http_headers}
    usual = {
        "Host": f"{action.host or 'localhost'}:{port}",
        "User-Agent": "kube-probe/1.35 (sandpool)",
        "Accept": "*/*",
        "Connection": "close",
    }
    lines = [f"GET {path if path.startswith('/') else '/' + path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in usual.items() if name.lower() not in given]
    lines += [_header(header) for header in action.http_headers]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "replace")


def _header(header: HttpHeader) -> str:
    line = f"{header.name}: {header.value}"
    if "\r" in line or "\n" in line or "\0" in line:
        raise _Wrong(f"header {header.name!r} holds a line break; remove it")
    return line


def _status(line: bytes) -> int:
    words = line.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit() or len(words[1]) != 3:
        raise _Wrong("what answered does not speak HTTP/1")
    return int(words[1])


def _trusting() -> ssl.SSLContext:
    """As a kubelet does: it asks whether somebody answers, not who."""
    context = agree_cheaply(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _name(action: Action) -> str:
    match action:
        case ExecAction(command=command):
            return f'command: "{shown(shlex.join(command))[:200]}"'
        case HttpGetAction():
            return f'Get "{action.scheme.lower()}://{action.host or "localhost"}:{action.port}{shown(action.path)}"'
        case TcpSocketAction():
            return f"dial tcp port {action.port}"
        case SleepAction():
            return "sleep"
