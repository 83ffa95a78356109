"""The claims of a run as requests, encoded once: only the name and the pool differ from one to the next."""

from __future__ import annotations

import msgspec

from sandpool.kube.calls import JSON, Call
from sandpool.load.stage import LABEL
from sandpool.model.kinds import CLAIMS

_NAME, _POOL = b"@name@", b"@pool@"


class ClaimBodies:
    def __init__(self, namespace: str, run: str) -> None:
        self._path = CLAIMS.path(namespace)
        body = msgspec.json.encode(
            {
                "apiVersion": CLAIMS.api_version,
                "kind": CLAIMS.kind,
                "metadata": {"name": _NAME.decode(), "labels": {LABEL: run}},
                "spec": {"warmPoolRef": {"name": _POOL.decode()}},
            }
        )
        self._head, rest = body.split(_NAME)
        self._middle, self._tail = rest.split(_POOL)
        self._pools: dict[str, bytes] = {}

    def create(self, name: str, pool: str) -> Call:
        written = self._pools.get(pool)
        if written is None:  # a trace may name anything: it must stay one word of JSON
            written = self._pools[pool] = msgspec.json.encode(pool)[1:-1]
        body = b"".join((self._head, name.encode(), self._middle, written, self._tail))
        return Call("POST", self._path, body, JSON)

    def delete(self, name: str) -> Call:
        return Call("DELETE", f"{self._path}/{name}")
