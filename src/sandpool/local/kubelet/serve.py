"""What the API server asks of whoever runs its pods. Today that is placing them; logs, exec and the like come with backends
that have them."""

from __future__ import annotations

from sandpool.local.apiserver.answer import Reply, encoded
from sandpool.local.apiserver.body import decode_object, read
from sandpool.local.apiserver.call import Call
from sandpool.local.apiserver.handlers.runtime import NotServed
from sandpool.local.apiserver.limits import Limits
from sandpool.local.apiserver.query import write_options
from sandpool.local.kubelet.bind import KIND
from sandpool.local.kubelet.binding import Bindings

_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


class PodRuntime:
    """Give it to the ApiServer as its `runtime`."""

    def __init__(self, bindings: Bindings, backend: str, limits: Limits = Limits()) -> None:
        self._bindings = bindings
        self._backend = backend
        self._limits = limits

    async def serve(self, call: Call) -> Reply:
        info = call.info
        if info.subresource != "binding":
            raise NotServed(
                f'pods "{info.name}" cannot serve "{info.subresource}": the backend {self._backend} has nothing to offer '
                "there; start the cluster with another --backend",
                details={"name": info.name, "kind": "pods"},
            )
        options = write_options(call.params, "CreateOptions")
        raw = await read(call.receive, self._limits.body, call.headers.get(b"content-length"))
        body = decode_object(raw, call.media, KIND, self._limits.depth)
        if not options.dry_run:
            await self._bindings.create(call.namespace, call.info.name, body)
        return encoded(_SUCCESS, 201)
