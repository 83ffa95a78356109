"""What becomes of pods when sandpool is restarted and their processes are gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import ContainerStatus, Exit, PodStatus, Started, State, Waiting, Workload
from sandpool.node.kubelet.agent import KubeletServices
from sandpool.node.pods.restarts import SANDPOOL_RESTARTED, after_restart
from sandpool.node.runtimes.fake import EXIT_AFTER, FakeBackend
from support.api.heard_events import HeardEvents
from support.simulated.kubelet_node import START, ANode, a_node, a_pod, condition
from unit.node.kubelet.test_plan import pod

pytestmark = pytest.mark.looptime


class Mortal(FakeBackend):
    """A backend whose pods die with the process, and are begun anew."""

    revives = False

    async def start_pod(self, workload: Workload) -> None:
        was = workload.was
        await super().start_pod(replace(workload, was=None))
        if was is not None:
            made = self._pods[workload.uid]
            counts = {c.name: c for c in (*was.init, *was.containers)}
            made.seen = replace(
                made.seen,
                containers=tuple(
                    replace(c, restarts=counts[c.name].restarts, last=counts[c.name].last) for c in made.seen.containers
                ),
            )


@asynccontextmanager
async def mortal() -> AsyncIterator[tuple[ANode, HeardEvents]]:
    heard = HeardEvents()
    async with a_node(make_backend=Mortal, around=KubeletServices(heard)) as node:
        yield node, heard


async def test_a_pod_that_may_be_restarted_is_and_it_counts() -> None:
    async with mortal() as (node, _):
        await node.create(a_pod())
        await asyncio.sleep(3)
        await node.restart()
        await asyncio.sleep(5)
        found = await node.get()
        status = found["status"]["containerStatuses"][0]
        assert (condition(found, "Ready"), status["restartCount"]) == ("True", 1)
        ended = status["lastState"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (255, SANDPOOL_RESTARTED)
        assert "sandpool was restarted" in ended["message"]
        await node.restart()
        await asyncio.sleep(5)
        assert (await node.get())["status"]["containerStatuses"][0]["restartCount"] == 2


async def test_a_pod_that_must_not_be_restarted_has_failed_and_says_why() -> None:
    async with mortal() as (node, heard):
        await node.create(a_pod(restartPolicy="Never"))
        await asyncio.sleep(3)
        await node.restart()
        await asyncio.sleep(5)
        found = await node.get()
        assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", SANDPOOL_RESTARTED)
        assert "Delete the pod" in found["status"]["message"]
        ended = found["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (255, SANDPOOL_RESTARTED)
        assert ended["startedAt"] < ended["finishedAt"]
        assert condition(found, "Ready") == "False"
        assert [one.reclaimed for one in node.backend.list_pods()] == [True]
        assert heard.reasons() == [SANDPOOL_RESTARTED]
        await node.delete()
        await asyncio.sleep(1)
        assert (await node.names(), node.left) == ([], 0)


async def test_a_pod_that_had_not_begun_just_begins() -> None:
    async with mortal() as (node, _):
        await node.create(a_pod(restartPolicy="Never"))
        await asyncio.sleep(0.001)
        await node.restart()
        await asyncio.sleep(5)
        found = await node.get()
        assert (condition(found, "Ready"), found["status"]["containerStatuses"][0]["restartCount"]) == ("True", 0)


async def test_a_pod_that_is_over_stays_over() -> None:
    async with mortal() as (node, _):
        await node.create(a_pod(restartPolicy="Never", annotations={EXIT_AFTER: "1"}))
        await asyncio.sleep(5)
        before = await node.get()
        await node.restart()
        await asyncio.sleep(5)
        assert (await node.get())["status"] == before["status"]
        assert before["status"]["phase"] == "Succeeded"


def a_running(*states: State, init: tuple[State, ...] = ()) -> PodStatus:
    return PodStatus(
        Uid("u1"),
        Key("default", "p"),
        "10.200.0.1",
        tuple(ContainerStatus(f"init{i}", state, restarts=1) for i, state in enumerate(init)),
        tuple(ContainerStatus(f"c{i}", state, restarts=3) for i, state in enumerate(states)),
        stopping=True,
    )


OK, BAD, RUNS = Exit(0, START), Exit(1, START), Started(START, ready=True)


@pytest.mark.parametrize(
    ("state", "policy", "restarts", "code"),
    [
        (RUNS, "Always", 4, 255),
        (RUNS, "OnFailure", 4, 255),
        (OK, "Always", 4, 0),
        (OK, "OnFailure", 3, None),
        (BAD, "OnFailure", 4, 1),
        (BAD, "Never", 3, None),
    ],
)
def test_which_containers_begin_anew(state: State, policy: str, restarts: int, code: int | None) -> None:
    found = after_restart(a_running(state), pod(restartPolicy=policy).spec, START)
    (container,) = found.containers
    assert (container.restarts, found.stopping, found.address) == (restarts, False, "10.200.0.1")
    if code is None:
        assert container.state == state
    else:
        assert isinstance(container.state, Waiting)
        assert container.last is not None
        assert container.last.code == code


def test_init_containers_run_again_uncounted_and_sidecars_counted() -> None:
    specs = [{"name": "init0", "image": "host"}, {"name": "init1", "image": "host", "restartPolicy": "Always"}]
    found = after_restart(a_running(RUNS, init=(OK, RUNS)), pod(initContainers=specs).spec, START)
    assert [(c.restarts, type(c.state)) for c in found.init] == [(1, Waiting), (2, Waiting)]


async def test_where_nothing_is_lost_nothing_is_counted() -> None:
    async with a_node(make_backend=lambda clock: FakeBackend(clock)) as node:
        await node.create(a_pod(restartPolicy="Never"))
        await asyncio.sleep(3)
        before = await node.get()
        await node.restart()
        await asyncio.sleep(5)
        assert await node.get() == before
