"""The gRPC service of the runtime sandboxd, process.v1.ProcessService, on the same table of processes that the rest of boxd serves.

Needs the extra `sandpool[grpc]`; the rest of boxd does not.
"""

from __future__ import annotations

import hmac
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import grpc

from sandpool.boxd.processes.output import Piece
from sandpool.boxd.processes.process import Exit, Process
from sandpool.boxd.processes.spec import MOST_KEPT, Size, Spec
from sandpool.boxd.processes.table import Table
from sandpool.wire import protobuf
from sandpool.wire.codes import Code, Refused
from sandpool.wire.frames import Kind
from sandpool.wire.protobuf import FIXED32, FIXED64, ProtobufError, Value, as_bytes, as_number, encode


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yields number and value of each field. Fields of fixed width are skipped: no message of this service has one."""
    for number, kind, value in protobuf.fields(data):
        if kind not in (FIXED64, FIXED32):
            yield number, value


def _text(value: Value) -> str:
    return as_bytes(value).decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class ProcessRequest:
    """A request about a running process."""

    process: str
    input: bytes | None = None
    ends: bool = False
    signal: int = 0
    size: Size | None = None


def execute_request(data: bytes) -> Spec:
    return _spec(data, feeds=False)


def start_request(data: bytes) -> Spec:
    return _spec(data, feeds=True)


def _spec(data: bytes, *, feeds: bool) -> Spec:
    config, terminal = _Config(), None
    for at, value in fields(data):
        if at == 1:
            config = _config(as_bytes(value))
        elif at == 2:
            terminal = _terminal(as_bytes(value))
    if not config.command:
        raise Refused(Code.INVALID, "config.command must name a program")
    return Spec(tuple(config.command), config.env, config.cwd, terminal=terminal, feeds=feeds)


@dataclass(slots=True)
class _Config:
    command: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""


def _config(data: bytes) -> _Config:
    found = _Config()
    for at, value in fields(data):
        if at == 1:
            found.command.append(_plain(_text(value)))
        elif at == 2:
            name, worth = "", ""
            for part, inner in fields(as_bytes(value)):
                name, worth = (_text(inner), worth) if part == 1 else (name, _text(inner))
            found.env[_plain(name)] = _plain(worth)
        elif at == 3:
            found.cwd = _plain(_text(value))
    return found


def _terminal(data: bytes) -> Size:
    sizes = {at: as_number(value) & 0xFFFF for at, value in fields(data)}
    return Size(sizes.get(1) or 80, sizes.get(2) or 24)


def _plain(word: str) -> str:
    if "\0" in word:
        raise Refused(Code.INVALID, "a text holds a null character")
    return word


def stdin_request(data: bytes) -> ProcessRequest:
    process, given, ends = "0", None, False
    for at, value in fields(data):
        if at == 1:
            process = _id(as_number(value))
        elif at == 2:
            given = as_bytes(value)
        elif at == 3:
            ends = True
    return ProcessRequest(process, given, ends)


def signal_request(data: bytes) -> ProcessRequest:
    found = {at: as_number(value) for at, value in fields(data)}
    return ProcessRequest(_id(found.get(1, 0)), signal=found.get(2, 0))


def resize_request(data: bytes) -> ProcessRequest:
    found = {at: as_number(value) for at, value in fields(data)}
    return ProcessRequest(_id(found.get(1, 0)), size=Size(found.get(2, 0) & 0xFFFF, found.get(3, 0) & 0xFFFF))


def _id(value: int) -> str:
    if value >= 1 << 31:
        raise ProtobufError("a process has no such number")
    return str(value)


def start_event(process: str) -> bytes:
    return encode(1, encode(1, int(process)))


def output_event(data: bytes, *, error: bool) -> bytes:
    return encode(3 if error else 2, data)


def exit_event(end: Exit) -> bytes:
    return encode(4, encode(1, _code(end)))


def execute_response(end: Exit, stdout: bytes, stderr: bytes) -> bytes:
    return encode(1, _code(end)) + encode(2, stdout) + encode(3, stderr)


def _code(end: Exit) -> int:
    """The exit code as sandboxd reports it: -1 if a signal ended the process."""
    return -1 if end.signal else end.code


NAME = "process.v1.ProcessService"
LONGEST = 4 << 20
_SIGNALS = {2: signal.SIGINT, 9: signal.SIGKILL, 15: signal.SIGTERM}
_STATUS = {
    Code.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Code.DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Code.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Code.NO_PROGRAM: grpc.StatusCode.NOT_FOUND,
    Code.CONFLICT: grpc.StatusCode.FAILED_PRECONDITION,
    Code.EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Code.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
}
Context = Any  # grpc.aio.ServicerContext; grpcio has no types


class ProcessService:
    def __init__(self, table: Table, token: str) -> None:
        self._table = table
        self._token = token.encode()

    async def execute(self, data: bytes, context: Context) -> bytes:
        """Runs a command to its end. When the call's deadline passes, output so far is lost with the call. A child left in the background does
        not delay the response."""
        spec = execute_request(data)
        process = self._table.start(Spec(spec.argv, spec.env, spec.cwd, keep=MOST_KEPT))
        try:
            said: dict[Kind, list[bytes]] = {Kind.STDOUT: [], Kind.STDERR: []}
            async with aclosing(process.output.follow(0)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Piece):
                        said[piece.kind].append(piece.data)
            return execute_response(process.ended.result(), b"".join(said[Kind.STDOUT]), b"".join(said[Kind.STDERR]))
        finally:
            self._table.remove(process.id)

    async def start(self, data: bytes, context: Context) -> AsyncIterator[bytes]:
        """Runs a process and streams its output. The process is ended with the call."""
        process = self._table.start(start_request(data))
        try:
            yield start_event(process.id)
            async with aclosing(process.output.follow(0)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Piece):
                        yield output_event(piece.data, error=piece.kind is Kind.STDERR)
            yield exit_event(process.ended.result())
        finally:
            if not process.ended.done():
                process.end()

    async def write_stdin(self, data: bytes, context: Context) -> bytes:
        request, process = self._known(stdin_request(data))
        if request.input:
            await process.feed(request.input)
        if request.ends:
            await process.end_input()
        return b""

    async def send_signal(self, data: bytes, context: Context) -> bytes:
        request, process = self._known(signal_request(data))
        if request.signal not in _SIGNALS:
            raise Refused(Code.INVALID, "signal must be SIGINT, SIGKILL or SIGTERM")
        process.signal(_SIGNALS[request.signal])
        return b""

    async def resize(self, data: bytes, context: Context) -> bytes:
        request, process = self._known(resize_request(data))
        assert request.size is not None
        process.resize(request.size)
        return b""

    def _known(self, request: ProcessRequest) -> tuple[ProcessRequest, Process]:
        return request, self._table.get(request.process)

    def admit(self, context: Context) -> None:
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        right = hmac.compare_digest(str(given).encode(), b"Bearer " + self._token)
        if self._token and not right:
            raise Refused(Code.UNAUTHENTICATED, "send the sandbox's token as authorization: Bearer")

    def handler(self) -> Any:
        unary: dict[str, Callable[[bytes, Context], Awaitable[bytes]]] = {
            "Execute": self.execute,
            "WriteStdin": self.write_stdin,
            "SendSignal": self.send_signal,
            "ResizeTTY": self.resize,
        }
        methods = {name: grpc.unary_unary_rpc_method_handler(self._answering(method)) for name, method in unary.items()}
        methods["Start"] = grpc.unary_stream_rpc_method_handler(self._streaming(self.start))
        return grpc.method_handlers_generic_handler(NAME, methods)

    def _answering(self, method: Callable[[bytes, Context], Awaitable[bytes]]) -> Any:
        async def answer(data: bytes, context: Context) -> bytes:
            try:
                self.admit(context)
                return await method(data, context)
            except (Refused, ProtobufError) as error:
                return await _abort(context, error)

        return answer

    def _streaming(self, method: Callable[[bytes, Context], AsyncIterator[bytes]]) -> Any:
        async def answer(data: bytes, context: Context) -> AsyncIterator[bytes]:
            try:
                self.admit(context)
                async for piece in method(data, context):
                    yield piece
            except (Refused, ProtobufError) as error:
                await _abort(context, error)

        return answer


async def _abort(context: Context, error: Refused | ProtobufError) -> bytes:
    code = error.code if isinstance(error, Refused) else Code.INVALID
    await context.abort(_STATUS.get(code, grpc.StatusCode.INTERNAL), str(error))
    raise AssertionError("abort raises")


async def serve(table: Table, token: str, host: str, port: int) -> tuple[Any, int]:
    """Starts the server; returns it with the port it listens on. OSError if it cannot listen."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", LONGEST), ("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((ProcessService(table, token).handler(),))
    address = f"[{host}]" if ":" in host else host
    try:
        bound = server.add_insecure_port(f"{address}:{port}")
    except RuntimeError as error:
        raise OSError(f"cannot listen on {host} port {port} for gRPC: {error}") from None
    await server.start()
    return server, bound
