"""`Runtime.serve` for pods that really run: what is asked of a pod is checked, then handed to whoever streams it.

Everything that can be wrong with a request is answered as a Status before its connection is upgraded; what goes wrong afterwards
is told in the words of the protocol that was chosen.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Generic

from sandpool.base import open_files as descriptors
from sandpool.base.errors import NodeError
from sandpool.base.shares import Shares
from sandpool.controlplane.apiserver.answer import Reply
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.exchange import Exchange, Upgrade
from sandpool.controlplane.apiserver.streams import status
from sandpool.controlplane.apiserver.streams.channel_line import ChannelLine
from sandpool.controlplane.apiserver.streams.forward import Forward
from sandpool.controlplane.apiserver.streams.forward_channels import ChannelForward
from sandpool.controlplane.apiserver.streams.limits import StreamLimits
from sandpool.controlplane.apiserver.streams.logs import LogReply
from sandpool.controlplane.apiserver.streams.options import CommandOptions, command_options, log_options, ports
from sandpool.controlplane.apiserver.streams.pipe import Pipe
from sandpool.controlplane.apiserver.streams.pod import (
    PodView,
    check_alive,
    check_assigned,
    check_logged,
    check_running,
    container_of,
    view,
)
from sandpool.controlplane.apiserver.streams.port import C, MakeCommand, Node, Streams
from sandpool.controlplane.apiserver.streams.remote import Line, Remote, serve_command
from sandpool.controlplane.apiserver.streams.spdy_line import SpdyLine
from sandpool.controlplane.apiserver.streams.upgrade import (
    COMMAND_SOCKETS,
    COMMAND_STREAMS,
    FORWARD,
    FORWARD_SOCKETS,
    TUNNEL,
    Channels,
    Wanted,
    wanted,
)
from sandpool.controlplane.apiserver.streams.websocket.connection import Tunnel, WebSocket
from sandpool.kube.errors import BadRequest, TooManyRequests, Unavailable
from sandpool.model.metadata import Uid

Serve = Callable[[Pipe], Awaitable[None]]
OLDEST = Channels(1)
"""What a client speaks that names no protocol."""


class PodStreams(Generic[C]):
    """`node` is the backend, `command` its type of a command, `now` the wall clock."""

    def __init__(
        self,
        node: Node[C],
        command: MakeCommand[C],
        now: Callable[[], datetime],
        limits: StreamLimits = StreamLimits(),
    ) -> None:
        self._node = node
        self._command = command
        self._now = now
        self._limits = limits
        self.shares = Shares(limits.connections)

    async def serve(self, call: Call, pod: bytes) -> Reply:
        tenant = call.user.tenant
        if not self.shares.fits(tenant):
            raise TooManyRequests(_words(self.shares, tenant), retry_after=1)
        if descriptors.few_left():  # the last open files are not for streams
            raise Unavailable(descriptors.told(), retry_after=5)
        asked = view(pod)
        reply = self._log(call, asked) if call.info.subresource == "log" else self._upgraded(call, asked)
        return _Counted(self.shares, tenant, reply)

    def _log(self, call: Call, pod: PodView) -> Reply:
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
        return LogReply(pieces, self._limits.first_line)

    def _upgraded(self, call: Call, pod: PodView) -> Reply:
        what = call.info.subresource
        headers, raw = call.exchange.headers, call.exchange.query
        if what == "portforward":
            check_assigned(pod)
            check_alive(pod, "forward to")
            asked = wanted(headers, FORWARD_SOCKETS, (FORWARD,))
            over_channels = asked.websocket and asked.protocol != TUNNEL
            serve = self._forward(pod, asked, ports(raw, self._limits.ports) if over_channels else ())
        else:
            options = command_options(call.params, raw, needs_command=what == "exec")
            container = container_of(pod, options.container)
            check_running(pod, container, "exec into" if what == "exec" else "attach to")
            asked = wanted(headers, COMMAND_SOCKETS, COMMAND_STREAMS)
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
                return status.SUCCESS  # that the container ended is no failure of the attachment
            command = self._command(options.argv, tty=options.tty)
            try:
                ended = await self._node.exec(uid, container, command, streams)
            except NodeError as error:
                raise NodeError(error.reason, f"error executing command in container: {error.message}") from error
            return status.of_exit(ended.code)

        return run

    def _command_on(
        self, asked: Wanted, options: CommandOptions, run: Callable[[Streams], Awaitable[Mapping[str, Any]]], what: str
    ) -> Serve:
        limits = self._limits

        async def serve(pipe: Pipe) -> None:
            line: Line
            if asked.websocket:
                channels = COMMAND_SOCKETS.get(asked.protocol, OLDEST)
                line = ChannelLine(WebSocket(pipe), channels, options, limits)
            else:
                line = SpdyLine(pipe, COMMAND_STREAMS.get(asked.protocol, OLDEST.version), options, limits)
            await serve_command(line, pipe, limits, Remote(line, options, lasting=what == "attach"), run)

        return serve

    def _forward(self, pod: PodView, asked: Wanted, numbers: tuple[int, ...]) -> Serve:
        limits = self._limits

        async def dial(port: int) -> socket.socket:
            try:
                return await self._node.dial(pod.metadata.uid, port)
            except NodeError as error:
                words = f"error forwarding port {port} to pod {pod.name}, uid {pod.metadata.uid}: {error.message}"
                raise NodeError(error.reason, words) from error

        async def serve(pipe: Pipe) -> None:
            if not asked.websocket:
                await Forward(pipe, dial, limits).serve(pipe)
            elif asked.protocol == TUNNEL:
                await Forward(Tunnel(WebSocket(pipe)), dial, limits).serve(pipe)
            else:
                channels = FORWARD_SOCKETS.get(asked.protocol) or Channels(4)
                await ChannelForward(WebSocket(pipe), channels, numbers, dial, limits).serve(pipe)

        return serve


class _Upgraded:
    """Answers 101 and streams."""

    status = 101

    def __init__(self, upgrade: Upgrade, asked: Wanted, serve: Serve, limits: StreamLimits) -> None:
        self._upgrade = upgrade
        self._asked = asked
        self._serve = serve
        self._limits = limits

    async def deliver(self, exchange: Exchange) -> None:
        await self._serve(self._upgrade(self._asked.headers, self._limits.answers))


class _Counted:
    """A reply that is counted for as long as it lasts."""

    def __init__(self, shares: Shares, tenant: str, reply: Reply) -> None:
        self._shares = shares
        self._tenant = tenant
        self._reply = reply
        self.status = reply.status

    async def deliver(self, exchange: Exchange) -> None:
        self._shares.take(self._tenant)
        try:
            await self._reply.deliver(exchange)
        finally:
            self._shares.take(self._tenant, -1)


def _words(shares: Shares, tenant: str) -> str:
    if not tenant:
        return f"too many streams: this server serves at most {shares.total} at once, please try again later"
    return (
        f'too many streams: namespace "{tenant}" has {shares.holds(tenant)} and may have {shares.limit(tenant)} of the '
        f"{shares.total} that this server serves at once to all, please end some, or try again later"
    )
