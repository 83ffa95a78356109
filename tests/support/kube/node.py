"""A hollow node for a real cluster, as a process: it places pods on itself and writes the status sequence that a kubelet
writes, but no process starts. It is the product's own kubelet with its hollow backend, over HTTP.

    python -m support.kube.node KUBECONFIG
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import uvloop

from sandpool.base.clock import SystemClock
from sandpool.kube.http import connect
from sandpool.kube.kubeconfig import load_kubeconfig
from sandpool.node.kubelet.agent import Kubelet
from sandpool.node.kubelet.options import KubeletOptions, Pace
from sandpool.node.runtimes.fake import FakeBackend
from sandpool.telemetry.log import configure


async def main(kubeconfig: Path) -> None:
    clock = SystemClock()
    config = load_kubeconfig([kubeconfig])
    options = KubeletOptions(node="hollow", workers=64, looks_up=False, pace=Pace(first_word=0.0))  # as a kubelet does
    while True:  # a node outlives its API server
        try:
            async with connect(config, clock=clock, draw=random.random, env=os.environ, width=32) as api:
                await Kubelet(api, FakeBackend(clock), clock, options).run()
        except Exception as error:
            print(f"begins anew after {error!r}", file=sys.stderr)
            await asyncio.sleep(0.5)


if __name__ == "__main__":
    configure(style="text", level="INFO")
    uvloop.run(main(Path(sys.argv[1])))
