"""Everything goes wrong now and then, by a seed; once it stops, every pod is as it should be and nothing is left over."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from sandpool.base.clock import LoopClock
from sandpool.kube.api import Api
from sandpool.kube.errors import Conflict, Gone, InternalError, TooManyRequests, Unreachable
from sandpool.model.kinds import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS
from sandpool.model.metadata import Uid
from sandpool.node.backend import BackendError, Workload
from sandpool.node.runtimes.fake import FakeBackend, FakeOptions
from support.api.flaky_api import FlakyApi
from support.simulated.kubelet_node import ANode, a_node, a_pod, condition

pytestmark = pytest.mark.looptime

BEFORE = (Conflict, InternalError, TooManyRequests, Unreachable)
HOLLOW = FakeOptions(start=(0.01, 2), ready=(0.01, 2), stop=(0.01, 5), failure_rate=0.1)


REFERRING = {
    "containers": [
        {
            "name": "main",
            "image": "host",
            "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}],
            "readinessProbe": {"tcpSocket": {"port": 1}},
            "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
        }
    ],
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
}


class Trouble:
    """Faults with a switch; each kind counts how often it happened."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.on = True
        self.happened: Counter[str] = Counter()

    def strikes(self, kind: str, rate: float) -> bool:
        struck = self.on and self.random.random() < rate
        self.happened[kind] += struck
        return struck

    async def before(self, verb: str, plural: str) -> None:
        await asyncio.sleep(self.random.random() * 0.05)
        if self.strikes("refused", 0.1):
            raise self.random.choice(BEFORE)(f"{verb} {plural} refused on purpose")

    async def after(self, verb: str, plural: str) -> None:
        if self.strikes("lost", 0.1):
            raise Unreachable(f"the answer to {verb} {plural} was lost on purpose")


class BadBackend(FakeBackend):
    def __init__(self, clock: LoopClock, trouble: Trouble) -> None:
        super().__init__(clock, HOLLOW)
        self._trouble = trouble

    async def start_pod(self, workload: Workload) -> None:
        if self._trouble.strikes("start", 0.2):
            raise BackendError("Unlucky", "not this time")
        await super().start_pod(workload)

    async def stop_pod(self, uid: Uid, grace: float) -> None:
        if self._trouble.strikes("stop", 0.2):
            raise BackendError("Unlucky", "not this time")
        await super().stop_pod(uid, grace)


async def mishaps(node: ANode, flaky: FlakyApi, random: Random, wanted: dict[str, str]) -> None:
    """One minute of pods that come and go, watches that break, a kubelet that is restarted."""
    for number in range(60):
        await asyncio.sleep(random.random() * 2)
        match random.choice(("create", "create", "create", "delete", "force", "again", "watch", "kubelet")):
            case "create":
                await node.create(a_pod(f"p{number}", **(REFERRING if number % 2 else {})))  # type: ignore[arg-type]
                wanted[f"p{number}"] = (await node.get(f"p{number}"))["metadata"]["uid"]
            case ("delete" | "force" | "again") as how if wanted:
                name = random.choice(sorted(wanted))
                del wanted[name]
                await node.delete(name, grace=None if how == "delete" else 0)
                if how == "again":
                    await node.create(a_pod(name))
                    wanted[name] = (await node.get(name))["metadata"]["uid"]
            case "watch":
                flaky.break_watches(random.choice((None, Unreachable("broken"), Gone("too old"))))
            case "kubelet":
                await node.restart()
            case _:
                pass


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 60))])
async def test_it_comes_right_in_the_end(seed: int) -> None:
    random = Random(seed)
    trouble = Trouble(random)
    made: list[FlakyApi] = []

    def between(api: Api) -> FlakyApi:
        made.append(FlakyApi(api, before=trouble.before, after=trouble.after))
        return made[0]

    async with a_node(make_backend=lambda clock: BadBackend(clock, trouble), between=between) as node:
        wanted: dict[str, str] = {}
        await node.api.inner.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"k": "v"}}, "default")
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = {"metadata": {"name": "data"}, "spec": spec}
        await node.api.inner.create(PERSISTENT_VOLUME_CLAIMS, claim, "default")
        await mishaps(node, made[0], random, wanted)
        trouble.on = False
        await asyncio.sleep(3600)
        pods = [await node.get(name) for name in await node.names()]
        assert {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods} == wanted
        assert {condition(pod, "Ready") for pod in pods} <= {"True"}  # there may be none
        assert len({pod["status"]["podIP"] for pod in pods}) == len(pods)
        assert {seen.uid: seen.address for seen in node.backend.list_pods()} == {
            pod["metadata"]["uid"]: pod["status"]["podIP"] for pod in pods
        }
        probed = sum("readinessProbe" in pod["spec"]["containers"][0] for pod in pods)
        assert node.left == 3 * len(pods) + probed
        assert node.holding == len(pods)
        assert all(trouble.happened[kind] for kind in ("refused", "lost", "start", "stop")), trouble.happened
        node.api.clear()
        await asyncio.sleep(600)
        assert node.api.count(resource="pods") == node.api.count("watch", "pods"), "quiet when there is nothing to do"
