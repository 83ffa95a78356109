"""Streams of the router's pod: a port-forward reaches the router in this process, and everything else is refused clearly.

The router trusts whoever comes this way, because existing clients show no token there: so only those may who may do everything.
All others have the router's own address, where they show their token. Pods of everybody else are streamed as ever.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Generic

import msgspec

from sandpool.base.errors import NodeError
from sandpool.controlplane.apiserver.answer import Reply
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.handlers.runtime import Runtime
from sandpool.controlplane.apiserver.streams.port import C, Exit, Node, Streams
from sandpool.controlplane.router_pod import RouterPod
from sandpool.kube.errors import BadRequest, Forbidden
from sandpool.model.metadata import Metadata, Model, Uid
from sandpool.wire.router_service import PORT

Take = Callable[[socket.socket], object]
"""Takes over one end of a connected stream; an error is the sender's to tell."""

_STANDS_FOR: Final = "it stands for the router inside sandpool, and nothing runs in it"


class _Named(Model, frozen=True):
    metadata: Metadata = Metadata()


_DECODER: Final = msgspec.json.Decoder(_Named)


class RouterStreams:
    """Who may ask what of the router's pod, before `streams` serves it."""

    def __init__(self, router: RouterPod, streams: Runtime) -> None:
        self._router = router
        self._streams = streams

    async def serve(self, call: Call, pod: bytes) -> Reply:
        info = call.info
        if self._router.stands_for(_DECODER.decode(pod).metadata.uid):
            if info.subresource == "log":
                raise BadRequest(
                    f'pods "{info.name}" has no log: {_STANDS_FOR}. Read what `sandpool up` says, or sandpool.log in the data '
                    "directory if it is detached"
                )
            if info.subresource != "portforward":
                raise BadRequest(f'pods "{info.name}" cannot serve "{info.subresource}": {_STANDS_FOR}')
            if not call.user.admin:
                raise Forbidden(
                    f'pods "{info.name}" is forbidden: User "{call.user.name}" cannot forward to the router, which lets '
                    "everybody who comes this way use all sandboxes; send your token to its own address instead "
                    "(`router` in `sandpool status -o json`)",
                    details={"name": info.name, "kind": "pods"},
                )
        return await self._streams.serve(call, pod)


class RouterNode(Generic[C]):
    """`inner`, and the router where its pod is meant."""

    def __init__(self, inner: Node[C], router: RouterPod, take: Take) -> None:
        self._inner = inner
        self._router = router
        self._take = take

    async def dial(self, uid: Uid, port: int) -> socket.socket:
        if not self._router.stands_for(uid):
            return await self._inner.dial(uid, port)
        if port != PORT:
            raise NodeError("ConnectionRefused", f"the router is reached at port {PORT} only, not at {port}")
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            theirs.setblocking(False)
            self._take(theirs)
        except BaseException as error:
            ours.close()
            theirs.close()
            if isinstance(error, Exception):
                raise NodeError("ConnectionRefused", f"the router takes no connection: {error}") from error
            raise
        return ours

    async def exec(self, uid: Uid, container: str, command: C, streams: Streams) -> Exit:
        self._refuse(uid)
        return await self._inner.exec(uid, container, command, streams)

    async def attach(self, uid: Uid, container: str, streams: Streams) -> Exit:
        self._refuse(uid)
        return await self._inner.attach(uid, container, streams)

    def logs(self, uid: Uid, container: str, **options: Any) -> AsyncIterator[bytes]:
        self._refuse(uid)
        return self._inner.logs(uid, container, **options)

    def _refuse(self, uid: Uid) -> None:
        if self._router.stands_for(uid):
            raise NodeError("BadRequest", f"the router's pod cannot do that: {_STANDS_FOR}")
