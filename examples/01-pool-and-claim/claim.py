"""The same as run.sh, without kubectl: creates a template, a warm pool and a claim, and prints when each is ready."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from sandpool.base.clock import SystemClock
from sandpool.kube.api import Api
from sandpool.kube.errors import AlreadyExists
from sandpool.kube.http import connect
from sandpool.kube.kubeconfig import load_config
from sandpool.model.conditions import is_true
from sandpool.model.kinds import CLAIMS, POOLS, TEMPLATES
from sandpool.model.metadata import Object
from sandpool.model.resource import Resource

T = TypeVar("T", bound=Object)
HERE = Path(__file__).parent


async def ensure(api: Api, resource: Resource[Any], name: str, namespace: str) -> bool:
    """Creates the object of the file. False if it exists already."""
    body = yaml.safe_load((HERE / f"{name}.yaml").read_text())
    try:
        await api.create(resource, body, namespace)
    except AlreadyExists:
        return False
    print(f"{resource.kind}/{body['metadata']['name']} created")
    return True


async def until(api: Api, resource: Resource[T], name: str, namespace: str, holds: Callable[[T], bool]) -> T:
    """Waits until `holds` is true of the object, with a watch instead of polling, and returns the object."""
    async with api.watch(resource, namespace, fields=f"metadata.name={name}", initial=True) as events:
        async for event in events:
            if event.object is not None and holds(event.object):
                return event.object
    raise SystemExit(f"the watch of {resource.kind} {name} ended; is the cluster still up?")


async def main() -> None:
    config = load_config(os.environ, Path.home())  # like kubectl: $KUBECONFIG, else ~/.kube/config
    namespace = config.namespace
    async with connect(config, clock=SystemClock(), draw=random.random, env=os.environ) as api, asyncio.timeout(60):
        await ensure(api, TEMPLATES, "template", namespace)
        await ensure(api, POOLS, "pool", namespace)
        full = await until(
            api, POOLS, "python", namespace, lambda pool: pool.status.ready_replicas >= pool.spec.replicas
        )
        print(f"pool python: {full.status.ready_replicas} of {full.spec.replicas} ready")

        began = time.perf_counter()
        fresh = await ensure(api, CLAIMS, "claim", namespace)
        claim = await until(api, CLAIMS, "mine", namespace, lambda claim: is_true(claim.status.conditions, "Ready"))
        took = f", Ready after {(time.perf_counter() - began) * 1000:.1f} ms" if fresh else ""
        assert claim.status.sandbox is not None
        print(f"claim mine has sandbox {claim.status.sandbox.name} at {claim.status.sandbox.pod_ips[0]}{took}")


asyncio.run(main())
