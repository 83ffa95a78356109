"""What objects take in memory is bounded, not only what is stored of them: controllers, the node and the garbage collector hold them decoded."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from sandpool.controllers import cache_transforms
from sandpool.controlplane.objects.holdings import MULTIPLE, HoldingLimits
from sandpool.controlplane.objects.memory_size import memory_size
from sandpool.controlplane.objects.objects import Objects
from sandpool.controlplane.objects.options import WriteOptions
from sandpool.controlplane.owner_graph import Graph
from sandpool.controlplane.store.log import MemoryLog
from sandpool.controlplane.store.record import Change, Record
from sandpool.controlplane.store.store import Store
from sandpool.kube.errors import Forbidden
from sandpool.loop.cache import Cache
from sandpool.model import codec, kinds
from sandpool.model.metadata import Revision
from sandpool.model.resource import Resource
from sandpool.node.kubelet.pods import NODE_PODS, PodTransform
from sandpool.node.network.policy import Policies
from support.api.local_objects import START

Body = dict[str, Any]
OBJECTS, PARTS = 16, 200
POD_SPEC: Body = {"containers": [{"name": "main", "image": "python"}]}


class Holders:
    """All that holds objects decoded in one process of `sandpool up`."""

    def __init__(self) -> None:
        made: dict[Resource[Any], tuple[Cache[Any], ...]] = {
            kinds.SANDBOXES: (Cache(kinds.SANDBOXES, keep=cache_transforms.SandboxTransform()),),
            kinds.PODS: (
                Cache(kinds.PODS, keep=cache_transforms.PodTransform()),
                Cache(NODE_PODS, keep=PodTransform()),
            ),
            kinds.NETWORK_POLICIES: (Cache(kinds.NETWORK_POLICIES), Cache(kinds.NETWORK_POLICIES)),
        }
        for kind in (kinds.CLAIMS, kinds.POOLS, kinds.TEMPLATES, kinds.SERVICES, kinds.PERSISTENT_VOLUME_CLAIMS):
            made[kind] = (Cache(kind),)
        self._caches = made
        self._graph = Graph()
        self._policies = Policies()

    def take(self, resource: Resource[Any], record: Record) -> None:
        for cache in self._caches.get(resource, ()):
            cache.upsert(codec.decode(cache.resource, record.value))
        if resource == kinds.NETWORK_POLICIES:
            self._policies.put(codec.decode(kinds.NETWORK_POLICIES, record.value))
        self._graph.apply(Change(record, None))


def allocated() -> int:
    """Bytes that our own code has allocated; other threads of the test process do not count."""
    ours = tracemalloc.Filter(True, "*/sandpool/*")
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([ours]).traces)


def held(resource: Resource[Any], records: Sequence[Record]) -> int:
    """Bytes that the holders allocate for these objects."""
    Holders().take(resource, records[0])  # decoders and the like are made once
    gc.collect()
    tracemalloc.start()
    try:
        holders = Holders()
        before = allocated()
        for record in records:
            holders.take(resource, record)
        gc.collect()
        return allocated() - before
    finally:
        tracemalloc.stop()


def stored(resource: Resource[Any], number: int, body: Body) -> Record:
    meta = {
        "name": f"o{number}",
        "namespace": "a",
        "uid": f"00000000-0000-4000-8000-{number:012d}",
        "resourceVersion": str(number + 1),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        **body.get("metadata", {}),
    }
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    value = msgspec.json.encode({**head, "metadata": meta, **{k: v for k, v in body.items() if k != "metadata"}})
    revision = Revision(number + 1)
    return Record(f"{resource.group or 'core'}/{resource.plural}/a/o{number}", revision, revision, value)


def owners(number: int) -> Body:
    return {
        "ownerReferences": [{"apiVersion": "v", "kind": "k", "name": "n", "uid": f"{number}u{i}"} for i in range(PARTS)]
    }


def labels(number: int) -> Body:
    return {"labels": {f"k{number}x{i}": "" for i in range(PARTS)}}


def marks(number: int) -> Body:
    return {"annotations": {f"k{number}x{i}": f"v{number}{i}" for i in range(PARTS)}}


def long_marks(number: int) -> Body:
    return {"annotations": {f"key-{number}-number-{i}": f"value-{number}-of-{i}" for i in range(PARTS)}}


def wide(number: int) -> Body:
    return {"annotations": {"a": "x" * 20_000 + "\U0001f600"}}


def nothing(number: int) -> Body:
    return {}


SPECS: dict[Resource[Any], Body] = {
    kinds.CLAIMS: {"warmPoolRef": {"name": "p"}},
    kinds.SANDBOXES: {"podTemplate": {"spec": POD_SPEC}},
    kinds.POOLS: {"sandboxTemplateRef": {"name": "t"}},
    kinds.TEMPLATES: {"podTemplate": {"spec": POD_SPEC}},
    kinds.PODS: POD_SPEC,
    kinds.SERVICES: {},
    kinds.PERSISTENT_VOLUME_CLAIMS: {"accessModes": ["ReadWriteOnce"]},
    kinds.NETWORK_POLICIES: {"podSelector": {}},
    kinds.CONFIG_MAPS: {},
}


def container(**fields: Any) -> Body:
    return {"spec": {"containers": [{"name": "main", "image": "python", **fields}]}, "status": {"phase": "Pending"}}


def several(make: Callable[[int], Any], most: int = PARTS) -> list[Any]:
    return [make(i) for i in range(most)]


DENSE: dict[str, tuple[Resource[Any], Callable[[int], Body]]] = {
    "claim env": (
        kinds.CLAIMS,
        lambda n: {"spec": {**SPECS[kinds.CLAIMS], "env": several(lambda i: {"name": f"e{n}{i}", "value": ""})}},
    ),
    "sandbox volumes": (
        kinds.SANDBOXES,
        lambda n: {
            "spec": {
                **SPECS[kinds.SANDBOXES],
                "volumeClaimTemplates": several(lambda i: {"spec": {}, "metadata": {"name": f"v{n}{i}"}}, 256),
            }
        },
    ),
    "template labels": (
        kinds.TEMPLATES,
        lambda n: {"spec": {"podTemplate": {"spec": POD_SPEC, "metadata": labels(n)}}},
    ),
    "pod env": (kinds.PODS, lambda n: container(env=several(lambda i: {"name": f"e{n}{i}"}))),
    "pod args": (kinds.PODS, lambda n: container(args=several(lambda i: f"{n}{i}"))),
    "pod ports": (kinds.PODS, lambda n: container(ports=several(lambda i: {"containerPort": 1000 + i}))),
    "pod mounts": (
        kinds.PODS,
        lambda n: container(volumeMounts=several(lambda i: {"name": "v", "mountPath": f"/{n}{i}"}, 256)),
    ),
    "pod volumes": (
        kinds.PODS,
        lambda n: {"spec": {**POD_SPEC, "volumes": several(lambda i: {"name": f"v{n}{i}", "emptyDir": {}}, 256)}},
    ),
    "pod files": (
        kinds.PODS,
        lambda n: {
            "spec": {
                **POD_SPEC,
                "volumes": [
                    {
                        "name": "v",
                        "configMap": {"name": "c", "items": several(lambda i: {"key": "k", "path": f"{n}{i}"})},
                    }
                ],
            }
        },
    ),
    "pod groups": (
        kinds.PODS,
        lambda n: {"spec": {**POD_SPEC, "securityContext": {"supplementalGroups": several(lambda i: 1000 + i)}}},
    ),
    "pod node selector": (kinds.PODS, lambda n: {"spec": {**POD_SPEC, "nodeSelector": labels(n)["labels"]}}),
    "pod conditions": (
        kinds.PODS,
        lambda n: {"spec": POD_SPEC, "status": {"conditions": several(lambda i: {"type": f"t{n}{i}", "status": ""})}},
    ),
    "service ports": (
        kinds.SERVICES,
        lambda n: {"spec": {"ports": several(lambda i: {"port": 300 + i, "name": f"n{n}{i}"})}},
    ),
    "service selector": (kinds.SERVICES, lambda n: {"spec": {"selector": labels(n)["labels"]}}),
    "policy blocks": (
        kinds.NETWORK_POLICIES,
        lambda n: {
            "spec": {
                "podSelector": {},
                "policyTypes": ["Egress"],
                "egress": [{"to": several(lambda i: {"ipBlock": {"cidr": f"10.{n}.{i % 250}.0/24"}})}],
            }
        },
    ),
    "policy selector": (
        kinds.NETWORK_POLICIES,
        lambda n: {"spec": {"podSelector": {"matchLabels": labels(n)["labels"]}, "egress": [{}]}},
    ),
}


def check(resource: Resource[Any], make: Callable[[int], Body]) -> None:
    records = [stored(resource, number, make(number)) for number in range(OBJECTS)]
    texts = sum(len(record.value) for record in records)
    estimate = sum(memory_size(resource.plural, record.value) for record in records)
    really = held(resource, records) + texts
    assert really <= estimate, (
        f"{really / texts:.1f} times the text is held, {estimate / texts:.1f} times was estimated"
    )


@pytest.mark.parametrize("name", DENSE)
def test_the_estimate_of_a_dense_object_is_not_too_low(name: str) -> None:
    check(*DENSE[name])


@pytest.mark.parametrize(
    "part", [owners, labels, marks, long_marks, wide, nothing], ids=lambda part: str(part.__name__)
)
@pytest.mark.parametrize("resource", SPECS, ids=lambda resource: str(resource.plural))
def test_the_estimate_of_dense_metadata_is_not_too_low(resource: Resource[Any], part: Callable[[int], Body]) -> None:
    check(resource, lambda number: {"metadata": part(number), "spec": SPECS[resource]})


@pytest.mark.parametrize(
    ("resource", "body"),
    [
        pytest.param(kinds.PODS, {"spec": POD_SPEC, "metadata": marks(0)}, id="pods with annotations"),
        pytest.param(kinds.CLAIMS, {"spec": SPECS[kinds.CLAIMS], "metadata": labels(0)}, id="claims with labels"),
        pytest.param(kinds.CONFIG_MAPS, {"metadata": owners(0)}, id="config maps with owners"),
    ],
)
async def test_a_tenant_fills_no_more_memory_than_its_share(resource: Resource[Any], body: Body) -> None:
    """Within its share of stored bytes it could fill nineteen times as much."""
    limit = 1 << 20
    store = await Store.open(MemoryLog())
    uids = iter(range(1_000_000))
    objects = Objects(store, lambda: START, lambda: f"uid-{next(uids)}", limits=HoldingLimits(size=limit))
    await objects.create(kinds.NAMESPACES, "", {"metadata": {"name": "a"}})

    async def fill() -> None:
        for number in range(10_000):
            named = {**body, "metadata": {**body["metadata"], "name": f"o{number}"}}
            await objects.create(resource, "a", named, WriteOptions(tenant="a"))

    with pytest.raises(Forbidden, match=r"memory=\d+.*--max-stored-bytes"):
        await fill()
    records = store.scan(f"{resource.group or 'core'}/{resource.plural}/").records
    texts = sum(len(record.value) for record in records)
    assert texts < limit // 2, "the stored bytes were not what was refused"
    assert held(resource, records) + texts < MULTIPLE * limit
    await store.close()


async def test_what_is_deleted_is_given_back() -> None:
    store = await Store.open(MemoryLog())
    objects = Objects(store, lambda: START, lambda: "uid", limits=HoldingLimits())
    await objects.create(kinds.NAMESPACES, "", {"metadata": {"name": "a"}})
    await objects.create(kinds.CLAIMS, "a", {"metadata": {"name": "c", **labels(0)}, "spec": SPECS[kinds.CLAIMS]})
    holdings = objects.holdings
    holdings.settle()
    record = objects.get(kinds.CLAIMS, "a", "c")
    assert holdings.memory.holds("a") == memory_size("sandboxclaims", record.value)
    await objects.delete(kinds.CLAIMS, "a", "c")
    holdings.settle()
    assert holdings.memory.holds("a") == 0
    await store.close()
