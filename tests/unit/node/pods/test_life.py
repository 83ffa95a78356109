"""What a pod needs next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from sandpool.node.backend import ContainerSpec, Exit, Started, State, Waiting
from sandpool.node.pods.context import PodsOptions
from sandpool.node.pods.life import (
    PodState,
    Reclaim,
    Remove,
    RunSandbox,
    SignalContainers,
    StartContainer,
    Step,
    Trouble,
    Wait,
    next_step,
    troubled,
    waiting,
)
from sandpool.node.pods.state import ContainerState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUNNING, OK = Started(NOW), Exit(0, NOW)
View = tuple[PodState, list[ContainerState]]


def part(
    name: str, state: State = Waiting(), *, again: bool = False, sidecar: bool = False, trouble: Trouble | None = None
) -> ContainerState:
    spec = ContainerSpec(name=name, restart_policy="Always" if sidecar else "")
    return ContainerState(spec, sidecar, state, again=again, trouble=trouble)


def view(init: Sequence[ContainerState] = (), containers: Sequence[ContainerState] = (), **pod: Any) -> View:
    return PodState(**pod), [*(replace(one, init=True) for one in init), *containers]


NEW, RUNS = part("a"), part("a", RUNNING)
DONE, FAILED = part("a", OK), part("a", Exit(1, NOW))
B = part("b")
LATER = Trouble("Why", "message", since=90.0, retry_at=200.0)


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        (view(containers=(B,)), RunSandbox()),
        (view(containers=(B,), trouble=LATER), Wait(200.0)),
        (view(containers=(NEW, B), made=True), StartContainer("a")),
        (view(containers=(RUNS, B), made=True), StartContainer("b")),
        (view(containers=(RUNS,), made=True), Wait()),
        (view(containers=(FAILED, RUNS), made=True), Wait()),
        (view(containers=(part("a", trouble=LATER), B), made=True), StartContainer("b")),
        (view(containers=(part("a", trouble=LATER), RUNS), made=True), Wait(200.0)),
        (view(containers=(part("a", OK, again=True),), made=True), StartContainer("a")),
        (view(containers=(NEW,), made=True, paused=True), Wait()),
        (view(containers=(RUNS,), made=True, paused=True, ends_at=130.0), SignalContainers()),
        # init containers
        (view(init=(NEW,), containers=(B,), made=True), StartContainer("a")),
        (view(init=(RUNS,), containers=(B,), made=True), Wait()),
        (view(init=(FAILED,), containers=(B,), made=True), Wait()),
        (view(init=(part("a", Exit(1, NOW), again=True),), containers=(B,), made=True), StartContainer("a")),
        (view(init=(DONE,), containers=(B,), made=True), StartContainer("b")),
        (view(init=(NEW,), containers=(part("c", OK), B), made=True), StartContainer("a")),
        (view(init=(NEW,), containers=(RUNS, B), made=True, initialized=True), StartContainer("b")),
        (view(init=(DONE, part("c"), part("d")), containers=(B,), made=True), StartContainer("c")),
        (view(init=(part("c", trouble=LATER), part("d")), containers=(B,), made=True), Wait(200.0)),
        # sidecars
        (view(init=(part("s", sidecar=True),), containers=(B,), made=True), StartContainer("s")),
        (view(init=(part("s", RUNNING, sidecar=True),), containers=(B,), made=True), StartContainer("b")),
        (
            view(
                init=(part("s", OK, sidecar=True, again=True),),
                containers=(RUNS,),
                made=True,
                initialized=True,
            ),
            StartContainer("s"),
        ),
        # over, and not deleted yet
        (view(containers=(DONE,), made=True, over=True), Reclaim()),
        (view(containers=(DONE,), over=True), Reclaim()),
        (view(containers=(RUNS,), made=True, over=True), Reclaim()),
        (view(containers=(DONE,), made=True, over=True, paused=True), Reclaim()),
        (view(containers=(DONE,), made=True, over=True, trouble=LATER), Wait(200.0)),
        (view(containers=(DONE,), over=True, reclaimed=True), Wait()),
        (view(init=(NEW,), containers=(DONE, B), made=True, over=True), Reclaim()),
        (
            view(
                init=(NEW, part("s", OK, sidecar=True, again=True)),
                containers=(DONE, B),
                over=True,
                reclaimed=True,
            ),
            Wait(),
        ),
        (view(containers=(DONE,), made=True, over=True, ends_at=130.0), Remove()),
        (view(containers=(DONE,), over=True, reclaimed=True, ends_at=130.0), Remove()),
        # the end
        (view(containers=(RUNS,), made=True, ends_at=130.0), SignalContainers()),
        (view(containers=(RUNS,), made=True, signalled=True, ends_at=130.0), Wait(130.0)),
        (view(containers=(RUNS,), made=True, ends_at=100.0), Remove()),
        (view(containers=(DONE,), made=True, signalled=True, ends_at=130.0), Remove()),
        (view(containers=(NEW,), ends_at=130.0), Remove()),
        (view(containers=(DONE,), made=True, ends_at=100.0, trouble=LATER), Wait(200.0)),
    ],
)
def test_next_step(seen: View, step: Step) -> None:
    assert next_step(*seen, 100.0) == step


def test_nothing_is_started_in_a_pod_that_stops() -> None:
    seen = view(containers=(NEW,), made=True, ends_at=130.0)
    assert next_step(*seen, 100.0) == Remove()


def test_delays_double_up_to_the_longest() -> None:
    options = PodsOptions(first_retry=1, first_pull_retry=10, longest_retry=40)
    trouble: Trouble | None = None
    delays = []
    for _ in range(4):
        trouble = troubled(trouble, "ErrImagePull", "", 100.0, options)
        delays.append(trouble.retry_at - 100.0)
    assert delays == [10, 20, 40, 40]
    assert troubled(None, "NoAddress", "", 100.0, options).retry_at == 101.0
    assert troubled(Trouble("x", "", 0, 0, count=5000), "x", "", 0.0, options).retry_at == 40.0


def test_a_failed_pull_is_shown_first_and_then_that_it_is_waited_for() -> None:
    trouble = troubled(None, "ErrImagePull", "no such image", 100.0)
    assert waiting(trouble, "busybox", 100.5).reason == "ErrImagePull"
    later = waiting(trouble, "busybox", 103.0)
    assert later.reason == "ImagePullBackOff"
    assert "busybox" in later.message
    assert "no such image" in later.message
    seen = view(containers=(part("a", trouble=trouble),), made=True)
    assert next_step(*seen, 100.5) == Wait(102.0)  # to change the words
    assert next_step(*seen, 103.0) == Wait(110.0)
    assert next_step(*seen, 110.0) == StartContainer("a")


def test_other_trouble_keeps_its_words() -> None:
    trouble = troubled(None, "InvalidImageName", "no", 100.0)
    assert waiting(trouble, "x", 100.9).reason == "InvalidImageName"
