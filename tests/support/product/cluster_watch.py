"""Waiting for a running cluster to become like something, told by a watch."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from sandpool.base.clock import SystemClock
from sandpool.kube.api import Api, EventType
from sandpool.kube.http import connect
from sandpool.kube.kubeconfig import load_kubeconfig
from sandpool.model.metadata import Object
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)
WAIT = 60.0


@asynccontextmanager
async def the_api(data_dir: Path) -> AsyncIterator[Api]:
    config = load_kubeconfig([data_dir / "kubeconfig"])
    async with connect(config, clock=SystemClock(), draw=random.random, env=os.environ) as api:
        yield api


def became(
    data_dir: Path, resource: Resource[T], holds: Callable[[dict[str, T]], bool], namespace: str = "default"
) -> dict[str, T]:
    """The same as `until`, for tests without an event loop."""

    async def wait() -> dict[str, T]:
        async with the_api(data_dir) as api:
            return await until(api, resource, holds, namespace)

    return asyncio.run(wait())


async def until(
    api: Api, resource: Resource[T], holds: Callable[[dict[str, T]], bool], namespace: str = "default"
) -> dict[str, T]:
    """All objects of the namespace, by name, once that holds of them."""
    found: dict[str, T] = {}
    complete = False
    try:
        async with asyncio.timeout(WAIT), api.watch(resource, namespace, initial=True) as events:
            async for event in events:
                complete = complete or event.initial_done
                if event.object is not None and event.type is EventType.DELETED:
                    found.pop(event.object.metadata.name, None)
                elif event.object is not None:
                    found[event.object.metadata.name] = event.object
                if complete and holds(found):
                    return found
    except TimeoutError:
        pass
    raise AssertionError(f"after {WAIT:g} s the {resource.plural} are {found}")
