"""What the pods of one namespace make a node do, however much that is, leaves the turns of another. Virtual time; turns and reads are counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandpool.base.clock import LoopClock
from sandpool.model.kinds import NAMESPACES, PODS
from support.answering_backend import AnsweringBackend
from support.kubelet_node import START, ANode, Body, a_node, a_pod

pytestmark = pytest.mark.looptime
OTHER = "other"


async def create(node: ANode, resource: Any, body: Body, namespace: str = "default") -> None:
    await node.api.inner.create(resource, body, namespace)


def probed(name: str, word: str) -> Body:
    probe = {"exec": {"command": [word]}, "periodSeconds": 1, "timeoutSeconds": 1}
    return a_pod(name, containers=[{"name": "main", "image": "host", "readinessProbe": probe}])


async def test_a_probe_waits_for_few_of_another_namespace() -> None:
    backend = AnsweringBackend(LoopClock(START))
    backend.codes["ready"], backend.slow["hang"] = 0, 1e6
    async with a_node(make_backend=lambda clock: backend) as node:
        await create(node, NAMESPACES, {"metadata": {"name": OTHER}})
        for number in range(320):
            await create(node, PODS, probed(f"p{number}", "hang"))
        await asyncio.sleep(30)
        began = len(backend.at)
        await create(node, PODS, probed("p", "ready"), OTHER)
        await asyncio.sleep(60)
        words = [word for _, word in backend.at[began:]]
        assert words.index("ready") < 3 * 16, "three seconds of theirs, in which it also starts: 320 wait at any time"
        assert words.count("ready") > 20, "and not only once"
        assert words.count("hang") > 500, "they are asked too"
