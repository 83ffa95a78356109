"""Runs probes and hooks: exec, HTTP and TCP. The other end may be hostile: what is read is bounded in time and size, and cleaned
before it is shown.
"""

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
from sandpool.node.kubelet.pods import (
    Action,
    ExecAction,
    Handler,
    HttpGetAction,
    HttpHeader,
    NodeContainer,
    SleepAction,
    TcpSocketAction,
)
from sandpool.node.kubelet.probe_state import Result

MOST_OUTPUT = 10 * 1024
PAUSE = 0.02
"""Seconds between two reads of output beyond MOST_OUTPUT, which is discarded. So a command that writes without end costs little."""
MOST_REQUEST = 64 * 1024
"""Characters of the path and headers of an HTTP probe, or of the words of a command: a probe runs every second, beside those of all tenants."""
_LONGEST_TEXT = 800
_LONGEST_LINE = 4096
_URL_SAFE = "/?&=%:@!$'()*+,;~#[]-._"


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    result: Result
    text: str = ""  # why it failed, fit to be shown


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """The container that is probed."""

    uid: Uid
    container: NodeContainer


class ProbeRunner:
    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock

    async def run(self, target: ProbeTarget, handler: Handler, timeout: float | None) -> ProbeOutcome:
        """Runs one probe or hook. Never raises, and returns within the timeout."""
        action = handler.action
        if action is None:
            return ProbeOutcome(Result.UNKNOWN, "it names no kind of probe that is supported")
        try:
            _check_size(action)
            async with asyncio.timeout(timeout) as limit:
                return await self._carry_out(target, action)
        except TimeoutError:
            if not limit.expired():
                return ProbeOutcome(Result.FAILURE, "timed out")
            return ProbeOutcome(Result.FAILURE, f"{_name(action)} timed out after {timeout:g}s")
        except Unsupported as error:
            return ProbeOutcome(Result.UNSUPPORTED, error.message)
        except UnknownPod as error:
            return ProbeOutcome(Result.UNKNOWN, error.message)
        except _Wrong as error:
            return ProbeOutcome(Result.FAILURE, str(error))
        except NodeError as error:
            return ProbeOutcome(Result.FAILURE, f"{_name(action)}: {shown(error.message)}")
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
            return ProbeOutcome(Result.FAILURE, f"{_name(action)}: {shown(str(error)) or type(error).__name__}")

    async def _carry_out(self, target: ProbeTarget, action: Action) -> ProbeOutcome:
        match action:
            case ExecAction():
                return await self._exec(target, action)
            case HttpGetAction():
                return await self._get(target, action)
            case TcpSocketAction():
                (await self._backend.dial(target.uid, _port(target.container.ports, action.port))).close()
            case SleepAction():
                await self._clock.sleep(max(0.0, action.seconds))
        return ProbeOutcome(Result.SUCCESS)

    async def _exec(self, target: ProbeTarget, action: ExecAction) -> ProbeOutcome:
        output = _Output(self._clock)
        end = await self._backend.exec(target.uid, target.container.name, Command(action.command), output)
        if end.code == 0:
            return ProbeOutcome(Result.SUCCESS)
        said = shown(output.data.decode("utf-8", "replace"))
        return ProbeOutcome(Result.FAILURE, said or f"{_name(action)} ended with exit code {end.code}")

    async def _get(self, target: ProbeTarget, action: HttpGetAction) -> ProbeOutcome:
        port = _port(target.container.ports, action.port)
        request = _request(action, port)
        connection = await self._backend.dial(target.uid, port)
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
            writer.transport.abort()  # close at once, without waiting
        if 200 <= status < 400:
            return ProbeOutcome(Result.SUCCESS)
        return ProbeOutcome(Result.FAILURE, f"HTTP probe failed with statuscode: {status}")


class _Wrong(Exception):
    """The probe's spec is invalid."""


@dataclass(slots=True)
class _Output:
    """Streams of a probe command: no input; keeps the first part of the output."""

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


def _check_size(action: Action) -> None:
    """Raises _Wrong if the probe is so large that running it would delay others."""
    match action:
        case ExecAction(command=words):
            size = sum(map(len, words)) + len(words)
        case HttpGetAction(path=path, http_headers=headers):
            size = len(path) + sum([len(one.name) + len(one.value) + 4 for one in headers])
        case _:
            size = 0
    if size > MOST_REQUEST:
        raise _Wrong(f"it has {size} characters, and at most {MOST_REQUEST} are allowed; put what is long into a file")


def shown(text: str) -> str:
    """Makes text fit for an Event: one line, without control characters, shortened."""
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
        raise _Wrong(f"{number} is not a port; use a number between 1 and 65535")
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
        raise _Wrong(f"header {header.name!r} contains a line break; remove it")
    return line


def _status(line: bytes) -> int:
    words = line.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit() or len(words[1]) != 3:
        raise _Wrong("the response is not HTTP/1")
    return int(words[1])


def _trusting() -> ssl.SSLContext:
    """A TLS context that accepts any certificate, as the kubelet does: a probe checks that a server responds, not its identity."""
    context = agree_cheaply(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _name(action: Action) -> str:
    match action:
        case ExecAction(command=command):
            return f'command: "{shown(shlex.join(command))[:200]}"'  # its size was checked
        case HttpGetAction():
            return f'Get "{action.scheme.lower()}://{action.host or "localhost"}:{action.port}{shown(action.path)}"'
        case TcpSocketAction():
            return f"dial tcp port {action.port}"
        case SleepAction():
            return "sleep"
