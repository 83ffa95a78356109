"""The same without kubectl: create the three objects through the REST API and show what the cluster made of them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import yaml

from sandpool.kube.config import load_kubeconfig
from sandpool.kube.http import HttpApi
from sandpool.model.kinds import CLAIMS, POOLS, TEMPLATES


async def main() -> None:
    here = Path(__file__).parent
    async with HttpApi(load_kubeconfig(os.environ["KUBECONFIG"])) as api:
        for resource, name in ((TEMPLATES, "template"), (POOLS, "pool"), (CLAIMS, "claim")):
            made = await api.create(resource, yaml.safe_load((here / f"{name}.yaml").read_text()), "default")
            print(f"{resource.kind}/{made.metadata.name} created at revision {made.metadata.revision}")
        print("pools:", [pool.metadata.name for pool in (await api.list(POOLS, "default")).items])


asyncio.run(main())
