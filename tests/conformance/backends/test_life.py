"""Start, restart, stop: what every backend guarantees about the life of a pod."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from conformance.backends.subject import Subject, a_workload, ended, gone, ready
from sandpool.model.metadata import Uid
from sandpool.node.backend import Exit, Started, UnknownPod, Waiting


async def test_a_started_pod_is_known_at_once_and_ready_later(subject: Subject) -> None:
    work = a_workload()
    await subject.backend.start_pod(work)
    seen = subject.backend.pod_status(work.uid)
    assert seen is not None
    assert (seen.uid, seen.key) == (work.uid, work.key)
    assert [c.name for c in seen.containers] == ["main"]
    seen = await subject.until(work.uid, ready)
    assert seen is not None
    assert seen.address
    assert list(subject.backend.list_pods()) == [seen]


async def test_every_step_is_called_back_after_it_was_made(subject: Subject) -> None:
    work = a_workload()
    await subject.started(work)
    await subject.backend.stop_pod(work.uid, 10)
    await subject.until(work.uid, gone)
    states = [seen for uid, seen in subject.told if uid == work.uid]
    assert states[-1] is None
    assert all(one != other for one, other in pairwise(states)), "called back without a difference"
    addresses = [seen.address for seen in states if seen is not None and seen.address]
    assert len(set(addresses)) == 1, "an address stays the same"


async def test_a_second_start_changes_nothing(subject: Subject) -> None:
    work = a_workload()
    before = await subject.started(work)
    told = len(subject.told)
    await subject.backend.start_pod(work)
    assert subject.backend.pod_status(work.uid) == before
    assert len(subject.told) == told
    assert len(subject.backend.list_pods()) == 1


async def test_init_containers_end_before_the_others_run(subject: Subject) -> None:
    work = a_workload(init=True)
    await subject.started(work)
    for uid, seen in subject.told:
        if uid == work.uid and seen is not None and isinstance(seen.containers[0].state, Started):
            assert all(isinstance(c.state, Exit) and c.state.code == 0 for c in seen.init)


async def test_no_two_pods_share_an_address(subject: Subject) -> None:
    count = 30 if subject.virtual else 4
    seen = [await subject.started(a_workload(number)) for number in range(count)]
    assert len({one.address for one in seen}) == count


async def test_pods_start_beside_each_other(subject: Subject) -> None:
    works = [a_workload(number) for number in range(30 if subject.virtual else 8)]
    await asyncio.gather(*(subject.started(work) for work in works))
    assert len(subject.backend.list_pods()) == len(works)


@pytest.mark.parametrize("grace", [0.0, 5.0])
async def test_a_stopped_pod_is_gone_within_its_grace(subject: Subject, grace: float) -> None:
    work = a_workload()
    await subject.started(work)
    began = asyncio.get_running_loop().time()
    await subject.backend.stop_pod(work.uid, grace)
    await subject.until(work.uid, gone)
    assert not subject.virtual or asyncio.get_running_loop().time() - began <= grace + 1
    assert list(subject.backend.list_pods()) == []


async def test_while_it_stops_a_pod_says_so(subject: Subject) -> None:
    work = a_workload()
    await subject.started(work)
    await subject.backend.stop_pod(work.uid, 5)
    seen = subject.backend.pod_status(work.uid)
    assert seen is None or seen.stopping


async def test_a_pod_may_be_stopped_before_it_runs(subject: Subject) -> None:
    work = a_workload()
    await subject.backend.start_pod(work)
    state = subject.container(work.uid).state
    assert isinstance(state, Waiting | Started)
    await subject.backend.stop_pod(work.uid, 0)
    await subject.until(work.uid, gone)
    told = len(subject.told)
    await subject.a_while()
    assert len(subject.told) == told, "a pod that is gone stays gone"


async def test_stop_may_be_repeated_and_of_nothing_is_nothing(subject: Subject) -> None:
    await subject.backend.stop_pod(Uid("unknown"), 0)
    work = a_workload()
    await subject.started(work)
    await subject.backend.stop_pod(work.uid, 20)
    await subject.backend.stop_pod(work.uid, 0)
    await subject.backend.stop_pod(work.uid, 20)
    await subject.until(work.uid, gone)
    await subject.backend.stop_pod(work.uid, 0)
    assert subject.backend.pod_status(work.uid) is None


async def test_a_stopped_pod_may_be_started_again(subject: Subject) -> None:
    work = a_workload()
    await subject.started(work)
    await subject.backend.stop_pod(work.uid, 0)
    await subject.until(work.uid, gone)
    assert ready(await subject.started(work))


async def test_an_end_is_known_until_the_pod_is_stopped(subject: Subject) -> None:
    work = a_workload(command="exit 3")
    await subject.backend.start_pod(work)
    seen = await subject.until(work.uid, ended)
    assert seen is not None
    end = seen.containers[0].state
    assert isinstance(end, Exit)
    assert (end.code, end.signal) == (3, 0)
    assert end.started_at is not None
    assert end.started_at <= end.at
    await subject.a_while()
    assert subject.backend.pod_status(work.uid) == seen
    await subject.backend.stop_pod(work.uid, 5)
    await subject.until(work.uid, gone)


async def test_a_container_that_ended_can_be_restarted(subject: Subject) -> None:
    work = a_workload(command="exit 1")
    await subject.backend.start_pod(work)
    await subject.until(work.uid, ended)
    first = subject.container(work.uid).state
    await subject.backend.restart_container(work.uid, "main")
    await subject.until(work.uid, lambda seen: seen is not None and seen.containers[0].restarts == 1)
    assert subject.container(work.uid).last == first
    await subject.until(work.uid, ended)
    assert subject.container(work.uid).restarts == 1


async def test_a_container_that_runs_is_not_restarted(subject: Subject) -> None:
    work = a_workload()
    before = await subject.started(work)
    await subject.backend.restart_container(work.uid, "main")
    assert subject.backend.pod_status(work.uid) == before


async def test_orders_about_what_is_not_there_say_so(subject: Subject) -> None:
    work = a_workload()
    await subject.started(work)
    for uid, container in ((Uid("unknown"), "main"), (work.uid, "other")):
        with pytest.raises(UnknownPod):
            await subject.backend.restart_container(uid, container)
    for order in (subject.backend.pause, subject.backend.resume, subject.backend.stats):
        with pytest.raises(UnknownPod):
            await order(Uid("unknown"))
