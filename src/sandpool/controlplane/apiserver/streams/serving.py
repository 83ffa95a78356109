"""Serves logs, exec, attach and port-forward of pods: checks the request, then upgrades the connection and streams.

All errors of a request are returned as a Status before its connection is upgraded; later errors are sent according to the chosen protocol.

A log is sent as it comes, no faster than the client reads, until either side ends it. The first piece shows whether a log can be read, so
the server waits a moment for it before the response begins.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final

from sandpool.base import open_files as descriptors
from sandpool.base.errors import NodeError
from sandpool.base.shares import Shares
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.exchange import Exchange, Upgrade, lines_of
from sandpool.controlplane.apiserver.limits import StreamLimits
from sandpool.controlplane.apiserver.response import Response, error_response
from sandpool.controlplane.apiserver.streams import remote_command
from sandpool.controlplane.apiserver.streams.options import CommandOptions, command_options, log_options, ports
from sandpool.controlplane.apiserver.streams.pipe import Pipe
from sandpool.controlplane.apiserver.streams.pod import (
    StreamedPod,
    check_alive,
    check_assigned,
    check_logged,
    check_running,
    container_of,
    view,
)
from sandpool.controlplane.apiserver.streams.port_forward import SpdyPortForward, WebSocketPortForward
from sandpool.controlplane.apiserver.streams.remote_command import (
    CommandConnection,
    RemoteStreams,
    SpdyCommand,
    WebSocketCommand,
    serve_command,
)
from sandpool.controlplane.apiserver.streams.upgrade import (
    COMMAND_SOCKETS,
    COMMAND_STREAMS,
    FORWARD,
    FORWARD_SOCKETS,
    TUNNEL,
    Channels,
    UpgradeChoice,
    negotiate_upgrade,
)
from sandpool.controlplane.apiserver.streams.websocket_channels import Tunnel, WebSocket
from sandpool.kube.errors import ApiError, BadRequest, InternalError, NotFound, TooManyRequests, Unavailable
from sandpool.model.metadata import Uid
from sandpool.model.pod_streams import Command, StreamingRuntime, Streams
from sandpool.telemetry.log import logger

Serve = Callable[[Pipe], Awaitable[None]]
OLDEST = Channels(1)
"""The protocol of a client that names none."""
log = logger(__name__)
_LINES: Final = lines_of([(b"content-type", b"text/plain"), (b"cache-control", b"no-cache, private")])


class PodStreams:
    """Serves exec, attach, port-forward and logs from `node`. `now` is the wall clock."""

    def __init__(
        self,
        node: StreamingRuntime,
        now: Callable[[], datetime],
        limits: StreamLimits = StreamLimits(),
    ) -> None:
        self._node = node
        self._now = now
        self._limits = limits
        self.shares = Shares(limits.connections)

    async def serve(self, call: Call, pod: bytes) -> Response:
        tenant = call.user.tenant
        if not self.shares.fits(tenant):
            raise TooManyRequests(_message(self.shares, tenant), retry_after=1)
        if descriptors.few_left():  # the last file descriptors are reserved for other work
            raise Unavailable(descriptors.limit_message(), retry_after=5)
        asked = view(pod)
        response = self._log(call, asked) if call.info.subresource == "log" else self._upgraded(call, asked)
        return _Counted(self.shares, tenant, response)

    def _log(self, call: Call, pod: StreamedPod) -> Response:
        options = log_options(call.params, pod.name, self._now())
        container = container_of(pod, options.container)
        check_logged(pod, container, previous=options.previous)
        pieces = self._node.logs(
            pod.metadata.uid,
            container,
            previous=options.previous,
            follow=options.follow,
            tail=options.tail,
            since=options.since,
            timestamps=options.timestamps,
            limit=options.limit,
        )
        return LogResponse(pieces, self._limits.first_line)

    def _upgraded(self, call: Call, pod: StreamedPod) -> Response:
        what = call.info.subresource
        headers, raw = call.exchange.headers, call.exchange.query
        if what == "portforward":
            check_assigned(pod)
            check_alive(pod, "forward to")
            asked = negotiate_upgrade(headers, FORWARD_SOCKETS, (FORWARD,))
            over_channels = asked.websocket and asked.protocol != TUNNEL
            serve = self._forward(pod, asked, ports(raw, self._limits.ports) if over_channels else ())
        else:
            options = command_options(call.params, raw, needs_command=what == "exec")
            container = container_of(pod, options.container)
            check_running(pod, container, "exec into" if what == "exec" else "attach to")
            asked = negotiate_upgrade(headers, COMMAND_SOCKETS, COMMAND_STREAMS)
            serve = self._command_on(asked, options, self._run(what, pod.metadata.uid, container, options), what)
        upgrade = call.exchange.upgrade
        if upgrade is None:
            raise BadRequest("Upgrade request required")
        return _Upgraded(upgrade, asked, serve, self._limits)

    def _run(
        self, what: str, uid: Uid, container: str, options: CommandOptions
    ) -> Callable[[Streams], Awaitable[Mapping[str, Any]]]:
        async def run(streams: Streams) -> Mapping[str, Any]:
            if what == "attach":
                await self._node.attach(uid, container, streams)
                return remote_command.SUCCESS  # the end of the container is not a failure of attach
            command = Command(options.argv, tty=options.tty)
            try:
                ended = await self._node.exec(uid, container, command, streams)
            except NodeError as error:
                raise NodeError(error.reason, f"error executing command in container: {error.message}") from error
            return remote_command.exit_status(ended.code)

        return run

    def _command_on(
        self,
        asked: UpgradeChoice,
        options: CommandOptions,
        run: Callable[[Streams], Awaitable[Mapping[str, Any]]],
        what: str,
    ) -> Serve:
        limits = self._limits

        async def serve(pipe: Pipe) -> None:
            connection: CommandConnection
            if asked.websocket:
                channels = COMMAND_SOCKETS.get(asked.protocol, OLDEST)
                connection = WebSocketCommand(WebSocket(pipe), channels, options, limits)
            else:
                connection = SpdyCommand(pipe, COMMAND_STREAMS.get(asked.protocol, OLDEST.version), options, limits)
            await serve_command(
                connection, pipe, limits, RemoteStreams(connection, options, lasting=what == "attach"), run
            )

        return serve

    def _forward(self, pod: StreamedPod, asked: UpgradeChoice, numbers: tuple[int, ...]) -> Serve:
        limits = self._limits

        async def dial(port: int) -> socket.socket:
            try:
                return await self._node.dial(pod.metadata.uid, port)
            except NodeError as error:
                message = f"error forwarding port {port} to pod {pod.name}, uid {pod.metadata.uid}: {error.message}"
                raise NodeError(error.reason, message) from error

        async def serve(pipe: Pipe) -> None:
            if not asked.websocket:
                await SpdyPortForward(pipe, dial, limits).serve(pipe)
            elif asked.protocol == TUNNEL:
                await SpdyPortForward(Tunnel(WebSocket(pipe)), dial, limits).serve(pipe)
            else:
                channels = FORWARD_SOCKETS.get(asked.protocol) or Channels(4)
                await WebSocketPortForward(WebSocket(pipe), channels, numbers, dial, limits).serve(pipe)

        return serve


class _Upgraded:
    """A response that upgrades the connection (101) and streams."""

    status = 101

    def __init__(self, upgrade: Upgrade, asked: UpgradeChoice, serve: Serve, limits: StreamLimits) -> None:
        self._upgrade = upgrade
        self._asked = asked
        self._serve = serve
        self._limits = limits

    async def deliver(self, exchange: Exchange) -> None:
        await self._serve(self._upgrade(self._asked.headers, self._limits.answers))


class _Counted:
    """A response that counts for its tenant as long as it lasts."""

    def __init__(self, shares: Shares, tenant: str, response: Response) -> None:
        self._shares = shares
        self._tenant = tenant
        self._response = response
        self.status = response.status

    async def deliver(self, exchange: Exchange) -> None:
        self._shares.take(self._tenant)
        try:
            await self._response.deliver(exchange)
        finally:
            self._shares.take(self._tenant, -1)


def _message(shares: Shares, tenant: str) -> str:
    if not tenant:
        return f"too many streams: this server serves at most {shares.total} at once, please try again later"
    return (
        f'too many streams: namespace "{tenant}" has {shares.holds(tenant)} and may have {shares.limit(tenant)} of the '
        f"{shares.total} that this server serves at once to all, please end some, or try again later"
    )


class LogResponse:
    """A log, streamed as it comes."""

    status = 200

    def __init__(self, pieces: AsyncIterator[bytes], wait: float) -> None:
        self._pieces = pieces
        self._wait = wait

    async def deliver(self, exchange: Exchange) -> None:
        exchange.allow_slow_reader()  # `kubectl logs | less` may take hours to read
        try:
            async with asyncio.TaskGroup() as tasks:
                first = tasks.create_task(self._first())
                pump = tasks.create_task(self._pump(first, exchange))
                leaving = tasks.create_task(exchange.left())
                await asyncio.wait({pump, leaving}, return_when=asyncio.FIRST_COMPLETED)
                for task in (first, pump, leaving):
                    task.cancel()
        finally:
            if isinstance(self._pieces, AsyncGenerator):
                await self._pieces.aclose()

    async def _first(self) -> bytes | NodeError | None:
        try:
            return await anext(self._pieces, None)
        except NodeError as error:
            return error

    async def _pump(self, first: asyncio.Task[bytes | NodeError | None], exchange: Exchange) -> None:
        await asyncio.wait({first}, timeout=self._wait)
        if first.done() and isinstance(error := first.result(), NodeError):
            await error_response(_refusal(error)).deliver(exchange)
            return
        await exchange.start(self.status, _LINES)
        piece = await first
        try:
            while piece is not None:
                if isinstance(piece, NodeError):
                    raise piece
                await exchange.piece(piece)
                piece = await anext(self._pieces, None)
        except NodeError as error:
            log.warning("a log could not be read on", reason=error.reason, message=error.message)
        await exchange.end()


def _refusal(error: NodeError) -> ApiError:
    if error.reason == "NotFound":
        return NotFound(error.message)
    return BadRequest(error.message) if error.reason == "BadRequest" else InternalError(error.message)
