"""Where a run takes place: a namespace, a template and a pool of its own, or a pool that is there; left as it was found."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sandpool.base.errors import SandpoolError
from sandpool.kube.api import Api, EventType
from sandpool.kube.errors import Gone, NotFound
from sandpool.load.errors import LoadError
from sandpool.model.kinds import CLAIMS, NAMESPACES, POOLS, TEMPLATES
from sandpool.model.metadata import Object
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.resource import Resource

LABEL = "sandpool.dev/load"
"""On every claim, and on the namespace of a run: which run made it."""
POOL = "load"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to stand on. With `pool` it is one that exists, in `namespace`; else everything is made, for `size` members."""

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
    labels: str  # selects the claims of this run; empty where no others can be
    left: list[str] = field(default_factory=list)  # what could not be removed, and why


@asynccontextmanager
async def a_stage(api: Api, wanted: Wanted, patience: float, said: Callable[[str], None]) -> AsyncIterator[Stage]:
    """What cannot be removed afterwards is told in `left`: a run that was measured is not lost for it."""
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
        stage.left.append(f"{what}: still there after {patience:g} s; look with `kubectl get all -n {stage.namespace}`")
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
            "out and one is made for the run"
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
    """What a run has not released itself: at the end of a good one there is nothing."""
    for claim in (await api.list(CLAIMS, stage.namespace, labels=stage.labels)).items:
        with contextlib.suppress(NotFound):
            await api.delete(CLAIMS, claim.metadata.name, stage.namespace)
            await _until(api, CLAIMS, claim.metadata.name, stage.namespace, lambda found: found is None)


async def _remove_namespace(api: Api, namespace: str) -> None:
    with contextlib.suppress(NotFound):
        await api.delete(NAMESPACES, namespace)
        await _until(api, NAMESPACES, namespace, "", lambda found: found is None)


async def _until(
    api: Api, resource: Resource[Any], name: str, namespace: str, told: Callable[[Any], bool]
) -> Object | None:
    """The first state of one object that `told` is content with; None stands for its absence."""
    fields = f"metadata.name={name}"
    while True:
        page = await api.list(resource, namespace, fields=fields)
        found: Any = page.items[0] if page.items else None
        if told(found):
            return found  # type: ignore[no-any-return]
        try:
            async with api.watch(resource, namespace, fields=fields, since=page.revision) as events:
                async for event in events:
                    if event.type is EventType.BOOKMARK:
                        continue
                    found = None if event.type is EventType.DELETED else event.object
                    if told(found):
                        return found  # type: ignore[no-any-return]
        except Gone:
            continue
