"""metrics.k8s.io: GET of PodMetrics and NodeMetrics, for `kubectl top`. A user who may read a pod may read its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.fairness import ResponseBudget, list_selected, wait_for_turn
from sandpool.controlplane.apiserver.handlers.read import listing
from sandpool.controlplane.apiserver.query import list_query
from sandpool.controlplane.apiserver.render import one
from sandpool.controlplane.apiserver.response import JsonResponse, Response
from sandpool.controlplane.objects.collection import pages
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import Listed, ListQuery
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import NotFound
from sandpool.model import times
from sandpool.model.kinds import NODES, PODS
from sandpool.model.metadata import Metadata, Model, Uid
from sandpool.model.quantities import Family, Quantity
from sandpool.model.resource import Resource
from sandpool.model.usage import NODE_METRICS, POD_METRICS, Usage, Used


class UsagePages:
    """Handlers of get and list in metrics.k8s.io."""

    def __init__(self, objects: Objects, usage: Usage, sending: ResponseBudget, now: Callable[[], datetime]) -> None:
        self._objects = objects
        self._usage = usage
        self._sending = sending
        self._now = now

    async def serve(self, call: Call) -> Response:
        return await (self._get(call) if call.info.verb == "get" else self._list(call))

    async def _get(self, call: Call) -> Response:
        form, name = call.form, call.info.name
        try:
            await wait_for_turn(self._objects, call, name, _about(call))
            record = self._objects.get(_about(call), call.namespace, name)
        except NotFound:
            raise _absent(call) from None
        found = next(self._documents(call, (record,), await self._usage.used()), None)
        if found is None:
            raise _absent(call)
        return JsonResponse(one(found.value, form, call.resource, call.params, self._now))

    async def _list(self, call: Call) -> Response:
        """Ignores `limit`: measurements have no revision that a second page could refer to."""
        form, asked = call.form, list_query(call.params)
        query = ListQuery(labels=asked.labels, fields=asked.fields)
        about, turn = _about(call), self._sending.turns.take
        await list_selected(self._objects, self._sending, call, about, query)  # validates before measuring
        used = await self._usage.used()
        listed = await list_selected(self._objects, self._sending, call, about, query)
        found: list[Record] = []
        for size, page in pages(listed.records):
            await turn(call.user.tenant, size)
            found += self._documents(call, page, used)
        return listing(call, Listed(tuple(found), listed.revision), form, self._now(), self._sending, refuse=True)

    def _documents(self, call: Call, records: Sequence[Record], used: Mapping[Uid, Used]) -> Iterator[Record]:
        by_node = {} if call.resource == POD_METRICS else self._by_node(used)
        for record in records:
            about = seen(record.value)
            if call.resource != POD_METRICS:
                value = of_node(about, by_node.get(about.metadata.name, ()), self._now())
            elif about.metadata.uid in used:
                value = of_pod(about, used[about.metadata.uid])
            else:
                continue  # it has no running process
            yield Record(record.key, record.revision, record.created, value)

    def _by_node(self, used: Mapping[Uid, Used]) -> dict[str, list[Used]]:
        found: dict[str, list[Used]] = {}
        for record in self._objects.list(PODS, "", ListQuery()).records:
            pod: Seen = seen(record.value)
            if pod.metadata.uid in used:
                found.setdefault(pod.spec.node_name, []).append(used[pod.metadata.uid])
        return found


def _about(call: Call) -> Resource[Any]:
    return PODS if call.resource == POD_METRICS else NODES


def _absent(call: Call) -> NotFound:
    resource, name = call.resource, call.info.name
    return NotFound(
        f'{resource.group_resource} "{name}" not found',
        details={"name": name, "group": resource.group, "kind": resource.plural},
    )


class _Named(Model, frozen=True):
    name: str = ""


class _Spec(Model, frozen=True):
    node_name: str = ""
    containers: tuple[_Named, ...] = ()


class Seen(Model, frozen=True):
    """The part of a pod or a node that is needed here."""

    metadata: Metadata = Metadata()
    spec: _Spec = _Spec()


_DECODER: Final = msgspec.json.Decoder(Seen)


def seen(value: bytes) -> Seen:
    return _DECODER.decode(value)


def of_pod(pod: Seen, used: Used) -> bytes:
    """The PodMetrics of a pod. A pod is measured as a whole: its first container gets all usage, the others zero."""
    nothing = Used(0.0, 0, used.at, used.window)
    containers = [
        {"name": container.name, "usage": _usage(nothing if index else used)}
        for index, container in enumerate(pod.spec.containers)
    ]
    return _document(POD_METRICS, pod, used.at, used.window, containers=containers)


def of_node(node: Seen, pods: Iterable[Used], now: datetime) -> bytes:
    """The NodeMetrics of a node: the sum of its pods."""
    found = list(pods)
    total = Used(
        sum(one.cores for one in found),
        sum(one.memory for one in found),
        max((one.at for one in found), default=now),
        max((one.window for one in found), default=0.0),
    )
    return _document(NODE_METRICS, node, total.at, total.window, usage=_usage(total))


def _document(resource: Resource[Any], about: Seen, at: datetime, window: float, **more: Any) -> bytes:
    meta = about.metadata
    metadata: dict[str, Any] = {"name": meta.name, "creationTimestamp": times.seconds(at)}
    if meta.namespace:
        metadata["namespace"] = meta.namespace
    if meta.labels:
        metadata["labels"] = meta.labels
    return msgspec.json.encode(
        {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "timestamp": times.seconds(at),
            "window": f"{window:.3f}s",
            **more,
        }
    )


def _usage(used: Used) -> dict[str, str]:
    return {
        "cpu": str(Quantity(round(used.cores * 10**9))),
        "memory": str(Quantity(used.memory * 10**9, Family.BINARY)),
    }
