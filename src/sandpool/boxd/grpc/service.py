"""process.v1.ProcessService on the same table of processes that the rest of boxd serves."""

from __future__ import annotations

import hmac
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc

from sandpool.boxd.grpc import messages
from sandpool.boxd.grpc.protobuf import Malformed
from sandpool.boxd.processes.output import Piece
from sandpool.boxd.processes.process import Process
from sandpool.boxd.processes.spec import MOST_KEPT, Spec
from sandpool.boxd.processes.table import Table
from sandpool.wire.codes import Code, Refused
from sandpool.wire.frames import Kind

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
        """What came before a deadline is lost with the call; a child left in the background holds nobody up."""
        spec = messages.execute_request(data)
        process = self._table.start(Spec(spec.argv, spec.env, spec.cwd, keep=MOST_KEPT))
        try:
            said: dict[Kind, list[bytes]] = {Kind.STDOUT: [], Kind.STDERR: []}
            async with aclosing(process.output.follow(0)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Piece):
                        said[piece.kind].append(piece.data)
            return messages.executed(process.ended.result(), b"".join(said[Kind.STDOUT]), b"".join(said[Kind.STDERR]))
        finally:
            self._table.remove(process.id)

    async def start(self, data: bytes, context: Context) -> AsyncIterator[bytes]:
        """The process lives as long as the call."""
        process = self._table.start(messages.start_request(data))
        try:
            yield messages.started(process.id)
            async with aclosing(process.output.follow(0)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Piece):
                        yield messages.output(piece.data, error=piece.kind is Kind.STDERR)
            yield messages.ended(process.ended.result())
        finally:
            if not process.ended.done():
                process.end()

    async def write_stdin(self, data: bytes, context: Context) -> bytes:
        told, process = self._known(messages.stdin_request(data))
        if told.input:
            await process.feed(told.input)
        if told.ends:
            await process.end_input()
        return b""

    async def send_signal(self, data: bytes, context: Context) -> bytes:
        told, process = self._known(messages.signal_request(data))
        if told.signal not in _SIGNALS:
            raise Refused(Code.INVALID, "signal must be SIGINT, SIGKILL or SIGTERM")
        process.signal(_SIGNALS[told.signal])
        return b""

    async def resize(self, data: bytes, context: Context) -> bytes:
        told, process = self._known(messages.resize_request(data))
        assert told.size is not None
        process.resize(told.size)
        return b""

    def _known(self, told: messages.Told) -> tuple[messages.Told, Process]:
        return told, self._table.get(told.process)

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
            except (Refused, Malformed) as error:
                return await _abort(context, error)

        return answer

    def _streaming(self, method: Callable[[bytes, Context], AsyncIterator[bytes]]) -> Any:
        async def answer(data: bytes, context: Context) -> AsyncIterator[bytes]:
            try:
                self.admit(context)
                async for piece in method(data, context):
                    yield piece
            except (Refused, Malformed) as error:
                await _abort(context, error)

        return answer


async def _abort(context: Context, error: Refused | Malformed) -> bytes:
    code = error.code if isinstance(error, Refused) else Code.INVALID
    await context.abort(_STATUS.get(code, grpc.StatusCode.INTERNAL), str(error))
    raise AssertionError("abort raises")


async def serve(table: Table, token: str, host: str, port: int) -> tuple[Any, int]:
    """A running server, and the port that it listens on. OSError if it cannot."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", LONGEST), ("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((ProcessService(table, token).handler(),))
    address = f"[{host}]" if ":" in host else host
    try:
        bound = server.add_insecure_port(f"{address}:{port}")
    except RuntimeError as error:
        raise OSError(f"cannot listen on {host} port {port} for gRPC: {error}") from None
    await server.start()
    return server, bound
