"""The namespace, template and pool that a run uses: created for it and removed afterwards, or an existing pool that is left unchanged."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Api, EventType
from sandpool.kube.errors import Gone, NotFound
from sandpool.kube.requests import JSON, HttpRequest
from sandpool.load.errors import LoadError
from sandpool.model.kinds import CLAIMS, NAMESPACES, POOLS, TEMPLATES
from sandpool.model.metadata import Object
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.resource import Resource

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

    def create(self, name: str, pool: str) -> HttpRequest:
        written = self._pools.get(pool)
        if written is None:  # a trace may name anything: it must remain one JSON string
            written = self._pools[pool] = msgspec.json.encode(pool)[1:-1]
        body = b"".join((self._head, name.encode(), self._middle, written, self._tail))
        return HttpRequest("POST", self._path, body, JSON)

    def delete(self, name: str) -> HttpRequest:
        return HttpRequest("DELETE", f"{self._path}/{name}")


LABEL = "sandpool.dev/load"
"""A label of every claim and of the namespace: which run created it."""
POOL = "load"


@dataclass(frozen=True, slots=True)
class Wanted:
    """With `pool`, an existing one in `namespace`; else everything is created, for `size` members."""

    run: str
    size: int = 0
    pool: str = ""
    namespace: str = "default"
    image: str = "host"
    command: tuple[str, ...] = ("sleep", "infinity")
    runtime_class: str = ""
    disposable: bool = False  # the cluster itself goes afterwards


@dataclass(frozen=True, slots=True)
class Stage:
    namespace: str
    pool: str
    own: bool
    replicas: int
    labels: str  # selects the claims of this run; empty if there can be no others
    left: list[str] = field(default_factory=list)  # what could not be removed, and why


@asynccontextmanager
async def a_stage(api: Api, wanted: Wanted, patience: float, said: Callable[[str], None]) -> AsyncIterator[Stage]:
    """What cannot be removed afterwards is listed in `left`; the measured run is not lost."""
    if wanted.pool:
        pool = await _existing(api, wanted)
        stage = Stage(wanted.namespace, wanted.pool, False, pool.spec.replicas or 0, f"{LABEL}={wanted.run}")
        try:
            yield stage
        finally:
            await _cleared(stage, said, _remove_claims(api, stage), patience)
        return
    stage = Stage(f"sandpool-load-{wanted.run}", POOL, True, wanted.size, "")
    try:
        await _make(api, wanted, stage.namespace)
        yield stage
    finally:
        if not wanted.disposable:
            said(f"removing the namespace {stage.namespace}")
            await _cleared(stage, said, _remove_namespace(api, stage.namespace), patience)


async def _cleared(stage: Stage, said: Callable[[str], None], removal: Awaitable[None], patience: float) -> None:
    what = f"the namespace {stage.namespace}" if stage.own else f"claims in {stage.namespace} with {stage.labels}"
    try:
        async with asyncio.timeout(patience):
            await removal
    except TimeoutError:
        stage.left.append(
            f"{what}: still exists after {patience:g} s; check with `kubectl get all -n {stage.namespace}`"
        )
    except SandpoolError as error:
        stage.left.append(f"{what}: {error}")
    for text in stage.left:
        said(f"not removed: {text}")


async def pool_is_full(api: Api, stage: Stage, patience: float) -> None:
    """Waits until every member that the pool should have can be claimed."""

    def full(pool: SandboxWarmPool | None) -> bool:
        if pool is None:
            raise LoadError(f"the pool {stage.namespace}/{stage.pool} was deleted; start again")
        return (pool.status.ready_replicas or 0) >= (pool.spec.replicas or 0)

    try:
        async with asyncio.timeout(patience):
            await _until(api, POOLS, stage.pool, stage.namespace, full)
    except TimeoutError:
        pool = await api.get(POOLS, stage.pool, stage.namespace)
        raise LoadError(
            f"the pool {stage.namespace}/{stage.pool} has {pool.status.ready_replicas or 0} of {pool.spec.replicas} members "
            f"ready after {patience:g} s; see `sandpool why`, or wait longer with --fill-timeout"
        ) from None


async def _existing(api: Api, wanted: Wanted) -> SandboxWarmPool:
    try:
        return await api.get(POOLS, wanted.pool, wanted.namespace)
    except NotFound:
        raise LoadError(
            f"there is no pool {wanted.pool} in {wanted.namespace}; name one with --pool and --namespace, or leave --pool "
            "out to have one created for the run"
        ) from None


async def _make(api: Api, wanted: Wanted, namespace: str) -> None:
    container: dict[str, Any] = {"name": "main", "image": wanted.image}
    if wanted.command:
        container["command"] = list(wanted.command)
    spec: dict[str, Any] = {"containers": [container]}
    if wanted.runtime_class:
        spec["runtimeClassName"] = wanted.runtime_class
    await api.create(NAMESPACES, {"metadata": {"name": namespace, "labels": {LABEL: wanted.run}}})
    template = {"metadata": {"name": POOL}, "spec": {"podTemplate": {"spec": spec}}}
    await api.create(TEMPLATES, template, namespace)
    pool = {"metadata": {"name": POOL}, "spec": {"replicas": wanted.size, "sandboxTemplateRef": {"name": POOL}}}
    await api.create(POOLS, pool, namespace)


async def _remove_claims(api: Api, stage: Stage) -> None:
    """Deletes the claims that a run has not released itself: none after a successful run."""
    for claim in (await api.list(CLAIMS, stage.namespace, labels=stage.labels)).items:
        with contextlib.suppress(NotFound):
            await api.delete(CLAIMS, claim.metadata.name, stage.namespace)
            await _until(api, CLAIMS, claim.metadata.name, stage.namespace, lambda found: found is None)


async def _remove_namespace(api: Api, namespace: str) -> None:
    with contextlib.suppress(NotFound):
        await api.delete(NAMESPACES, namespace)
        await _until(api, NAMESPACES, namespace, "", lambda found: found is None)


async def _until(
    api: Api, resource: Resource[Any], name: str, namespace: str, condition: Callable[[Any], bool]
) -> Object | None:
    """The first state of one object for which `condition` is true; None stands for its absence."""
    fields = f"metadata.name={name}"
    while True:
        page = await api.list(resource, namespace, fields=fields)
        found: Any = page.items[0] if page.items else None
        if condition(found):
            return found  # type: ignore[no-any-return]
        try:
            async with api.watch(resource, namespace, fields=fields, since=page.revision) as events:
                async for event in events:
                    if event.type is EventType.BOOKMARK:
                        continue
                    found = None if event.type is EventType.DELETED else event.object
                    if condition(found):
                        return found  # type: ignore[no-any-return]
        except Gone:
            continue
