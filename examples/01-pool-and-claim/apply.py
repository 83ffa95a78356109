"""The same without kubectl: create the three objects through the REST API and show what the cluster made of them."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import yaml

from sandpool.kube.http import connect
from sandpool.kube.kubeconfig import load_config
from sandpool.loop.clock import SystemClock
from sandpool.model.kinds import CLAIMS, POOLS, TEMPLATES


async def main() -> None:
    here = Path(__file__).parent
    config = load_config(os.environ, Path.home())  # as kubectl finds it: $KUBECONFIG, else ~/.kube/config
    async with connect(config, clock=SystemClock(), draw=random.random, env=os.environ) as api:
        for resource, name in ((TEMPLATES, "template"), (POOLS, "pool"), (CLAIMS, "claim")):
            made = await api.create(resource, yaml.safe_load((here / f"{name}.yaml").read_text()), config.namespace)
            print(f"{resource.kind}/{made.metadata.name} created at revision {made.metadata.revision}")
        pools = await api.list(POOLS, config.namespace)
        print("pools:", ", ".join(pool.metadata.name for pool in pools.items))


asyncio.run(main())
