"""GET of what pods and nodes use, for `kubectl top`. What may be seen of pods is what may be seen of the pods themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sandpool.controlplane.apiserver.answer import Answer, Reply
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.handlers.read import listing
from sandpool.controlplane.apiserver.handlers.weight import selected, weigh
from sandpool.controlplane.apiserver.query import list_query
from sandpool.controlplane.apiserver.render import one
from sandpool.controlplane.apiserver.sending import Sending
from sandpool.controlplane.apiserver.usage.documents import Seen, of_node, of_pod, seen
from sandpool.controlplane.objects.collection import pages
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import Listed, ListQuery
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import NotFound
from sandpool.model.kinds import NODES, PODS
from sandpool.model.metadata import Uid
from sandpool.model.resource import Resource
from sandpool.model.usage import POD_METRICS, Usage, Used


class UsagePages:
    def __init__(self, objects: Objects, usage: Usage, sending: Sending, now: Callable[[], datetime]) -> None:
        self._objects = objects
        self._usage = usage
        self._sending = sending
        self._now = now

    async def serve(self, call: Call) -> Reply:
        return await (self._get(call) if call.info.verb == "get" else self._list(call))

    async def _get(self, call: Call) -> Reply:
        form, name = call.form, call.info.name
        try:
            await weigh(self._objects, call, name, _about(call))
            record = self._objects.get(_about(call), call.namespace, name)
        except NotFound:
            raise _absent(call) from None
        found = next(self._documents(call, (record,), await self._usage.used()), None)
        if found is None:
            raise _absent(call)
        return Answer(one(found.value, form, call.resource, call.params, self._now))

    async def _list(self, call: Call) -> Reply:
        """Whole, whatever `limit` says: there is nothing that a second page could be consistent with."""
        form, asked = call.form, list_query(call.params)
        query = ListQuery(labels=asked.labels, fields=asked.fields)
        about, turn = _about(call), self._sending.turns.take
        await selected(
            self._objects, self._sending, call, about, query
        )  # what is wrong is said before anybody measures
        used = await self._usage.used()
        listed = await selected(self._objects, self._sending, call, about, query)
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
                continue  # nothing of it runs
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
