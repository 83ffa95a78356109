"""Each pod on the backend that it asks for, and on no other."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from sandpool.base.clock import LoopClock
from sandpool.base.errors import NodeError
from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import (
    BackendError,
    Changed,
    Command,
    ContainerSpec,
    Probe,
    UnknownPod,
    Workload,
    WorkloadSpec,
)
from sandpool.node.runtime_choice import ChosenBackend
from sandpool.node.runtimes.fake import FakeBackend
from support.node.streams import TestStreams

pytestmark = pytest.mark.looptime
START = datetime(2026, 1, 1, tzinfo=UTC)


class Named(FakeBackend):
    def __init__(self, name: str, why_not: str = "", *, breaks: bool = False) -> None:
        super().__init__(LoopClock(START))
        self.name = name
        self.opened = 0
        self.tried = 0
        self._why_not = why_not
        self._breaks = breaks

    async def probe(self) -> Probe:
        self.tried += 1
        if self._breaks:
            raise NodeError("Broken", "the probe fails")
        return Probe(not self._why_not, "Missing" if self._why_not else "", self._why_not)

    async def open(self, changed: Changed) -> None:
        self.opened += 1
        await super().open(changed)

    async def close(self) -> None:
        self.opened -= 1
        await super().close()


def a_pod(number: int, runtime: str | None = None) -> Workload:
    spec = WorkloadSpec(containers=(ContainerSpec(name="main"),), runtime_class_name=runtime)
    return Workload(Uid(f"uid-{number}"), Key("default", f"pod-{number}"), spec)


@pytest.fixture
async def backends() -> list[Named]:
    return [Named("one"), Named("two"), Named("away", "no runsc on PATH; install it"), Named("broken", breaks=True)]


async def test_a_pod_runs_where_it_asks_to(backends: list[Named]) -> None:
    chosen = ChosenBackend(backends, "one")
    told: list[Uid] = []
    await chosen.open(told.append)
    for number, name in enumerate((None, "", "two")):
        await chosen.start_pod(a_pod(number, name))
    assert [len(backend.list_pods()) for backend in backends] == [2, 1, 0, 0]
    assert {seen.uid for seen in chosen.list_pods()} == {"uid-0", "uid-1", "uid-2"} == set(told)
    await chosen.pause(Uid("uid-2"))
    seen = backends[1].pod_status(Uid("uid-2"))
    assert seen is not None
    assert seen.paused
    assert chosen.pod_status(Uid("uid-2")) == seen
    await chosen.close()
    assert [backend.opened for backend in backends] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("name", "why"),
    [("away", "no runsc on PATH"), ("broken", "the probe fails"), ("unheard-of", "no such backend")],
)
async def test_what_is_not_there_is_refused_and_never_replaced(backends: list[Named], name: str, why: str) -> None:
    chosen = ChosenBackend(backends, "one")
    await chosen.open(lambda uid: None)
    with pytest.raises(BackendError) as error:
        await chosen.start_pod(a_pod(1, name))
    assert error.value.reason == "RuntimeClassUnavailable"
    for words in (name, why, "one, two"):
        assert words in error.value.message
    assert list(chosen.list_pods()) == []
    assert [backend.opened for backend in backends] == [1, 1, 0, 0]
    await chosen.close()


async def test_a_default_that_does_not_work_is_refused_too(backends: list[Named]) -> None:
    chosen = ChosenBackend(backends, "away")
    assert not (await chosen.probe()).available
    await chosen.open(lambda uid: None)
    with pytest.raises(BackendError, match="RuntimeClassUnavailable"):
        await chosen.start_pod(a_pod(1))
    await chosen.start_pod(a_pod(1, "two"))
    await chosen.close()
    with pytest.raises(ValueError, match="unheard-of"):
        ChosenBackend(backends, "unheard-of")


async def test_what_is_offered(backends: list[Named]) -> None:
    offers = await ChosenBackend(backends, "one").offers()
    assert {name: probe.available for name, probe in offers.items()} == {
        "one": True,
        "two": True,
        "away": False,
        "broken": False,
    }


async def test_a_start_tries_each_once(backends: list[Named]) -> None:
    """Trying one takes a sandbox of its own: most of a second, with the machine's skeleton."""
    chosen = ChosenBackend(backends, "one")
    await chosen.probe()
    await chosen.offers()
    await chosen.open(lambda uid: None)
    assert [backend.tried for backend in backends] == [1, 1, 1, 1]
    await chosen.close()


async def test_a_pod_that_runs_is_not_started_elsewhere(backends: list[Named]) -> None:
    chosen = ChosenBackend(backends, "one")
    await chosen.open(lambda uid: None)
    work = a_pod(1)
    await chosen.start_pod(work)
    await chosen.start_pod(replace(work, spec=msgspec.structs.replace(work.spec, runtime_class_name="two")))
    assert [len(backend.list_pods()) for backend in backends[:2]] == [1, 0]
    await chosen.stop_pod(work.uid, 0)
    await chosen.close()


async def test_unknown_pods_are_unknown(backends: list[Named]) -> None:
    chosen = ChosenBackend(backends, "one")
    await chosen.open(lambda uid: None)
    nobody = Uid("nobody")
    assert chosen.pod_status(nobody) is None
    await chosen.stop_pod(nobody, 0)
    for order in (
        chosen.pause(nobody),
        chosen.resume(nobody),
        chosen.stats(nobody),
        chosen.restart_container(nobody, "main"),
        chosen.stop_container(nobody, "main", 0),
        chosen.dial(nobody, 1),
        chosen.exec(nobody, "main", Command(("true",)), TestStreams()),
        chosen.attach(nobody, "main", TestStreams()),
        anext(chosen.logs(nobody, "main")),
    ):
        with pytest.raises(UnknownPod):
            await order
    await chosen.close()
