"""What a pod needs next."""

from __future__ import annotations

from math import inf

import pytest

from sandpool.node.pods.life import (
    Ask,
    Begin,
    Make,
    Part,
    PodView,
    Reclaim,
    Rest,
    Stage,
    Step,
    TakeAway,
    Trouble,
    next_step,
    troubled,
    waiting,
)
from sandpool.node.pods.options import PodsOptions

NEW, RUNS = Part("a"), Part("a", Stage.RUNS)
DONE, FAILED = Part("a", Stage.ENDED), Part("a", Stage.ENDED, code=1)
B = Part("b")
LATER = Trouble("Why", "message", since=90.0, retry_at=200.0)


@pytest.mark.parametrize(
    ("view", "step"),
    [
        (PodView(containers=(B,)), Make()),
        (PodView(containers=(B,), trouble=LATER), Rest(200.0)),
        (PodView(containers=(NEW, B), made=True), Begin("a")),
        (PodView(containers=(RUNS, B), made=True), Begin("b")),
        (PodView(containers=(RUNS,), made=True), Rest()),
        (PodView(containers=(FAILED, RUNS), made=True), Rest()),
        (PodView(containers=(Part("a", trouble=LATER), B), made=True), Begin("b")),
        (PodView(containers=(Part("a", trouble=LATER), RUNS), made=True), Rest(200.0)),
        (PodView(containers=(Part("a", Stage.ENDED, again=True),), made=True), Begin("a")),
        (PodView(containers=(NEW,), made=True, paused=True), Rest()),
        (PodView(containers=(RUNS,), made=True, paused=True, stopping=True, ends_at=130.0), Ask()),
        # init containers
        (PodView(init=(NEW,), containers=(B,), made=True), Begin("a")),
        (PodView(init=(RUNS,), containers=(B,), made=True), Rest()),
        (PodView(init=(FAILED,), containers=(B,), made=True), Rest()),
        (PodView(init=(Part("a", Stage.ENDED, code=1, again=True),), containers=(B,), made=True), Begin("a")),
        (PodView(init=(DONE,), containers=(B,), made=True), Begin("b")),
        (PodView(init=(NEW,), containers=(Part("c", Stage.ENDED), B), made=True), Begin("a")),
        (PodView(init=(NEW,), containers=(RUNS, B), made=True, initialized=True), Begin("b")),
        (PodView(init=(DONE, Part("c"), Part("d")), containers=(B,), made=True), Begin("c")),
        (PodView(init=(Part("c", trouble=LATER), Part("d")), containers=(B,), made=True), Rest(200.0)),
        # sidecars
        (PodView(init=(Part("s", sidecar=True),), containers=(B,), made=True), Begin("s")),
        (PodView(init=(Part("s", Stage.RUNS, sidecar=True),), containers=(B,), made=True), Begin("b")),
        (
            PodView(
                init=(Part("s", Stage.ENDED, sidecar=True, again=True),),
                containers=(RUNS,),
                made=True,
                initialized=True,
            ),
            Begin("s"),
        ),
        # over, and not deleted yet
        (PodView(containers=(DONE,), made=True, over=True), Reclaim()),
        (PodView(containers=(DONE,), over=True), Reclaim()),
        (PodView(containers=(RUNS,), made=True, over=True), Reclaim()),
        (PodView(containers=(DONE,), made=True, over=True, paused=True), Reclaim()),
        (PodView(containers=(DONE,), made=True, over=True, trouble=LATER), Rest(200.0)),
        (PodView(containers=(DONE,), over=True, reclaimed=True), Rest()),
        (PodView(init=(NEW,), containers=(DONE, B), made=True, over=True), Reclaim()),
        (
            PodView(
                init=(NEW, Part("s", Stage.ENDED, sidecar=True, again=True)),
                containers=(DONE, B),
                over=True,
                reclaimed=True,
            ),
            Rest(),
        ),
        (PodView(containers=(DONE,), made=True, over=True, stopping=True, ends_at=130.0), TakeAway()),
        (PodView(containers=(DONE,), over=True, reclaimed=True, stopping=True, ends_at=130.0), TakeAway()),
        # the end
        (PodView(containers=(RUNS,), made=True, stopping=True, ends_at=130.0), Ask()),
        (PodView(containers=(RUNS,), made=True, stopping=True, asked=True, ends_at=130.0), Rest(130.0)),
        (PodView(containers=(RUNS,), made=True, stopping=True, ends_at=100.0), TakeAway()),
        (PodView(containers=(DONE,), made=True, stopping=True, asked=True, ends_at=130.0), TakeAway()),
        (PodView(containers=(NEW,), stopping=True, ends_at=130.0), TakeAway()),
        (PodView(containers=(DONE,), made=True, stopping=True, ends_at=100.0, trouble=LATER), Rest(200.0)),
    ],
)
def test_next_step(view: PodView, step: Step) -> None:
    assert next_step(view, 100.0) == step


def test_nothing_is_started_in_a_pod_that_stops() -> None:
    view = PodView(containers=(NEW,), made=True, stopping=True, ends_at=inf)
    assert next_step(view, 100.0) == TakeAway()


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
    view = PodView(containers=(Part("a", trouble=trouble),), made=True)
    assert next_step(view, 100.5) == Rest(102.0)  # to change the words
    assert next_step(view, 103.0) == Rest(110.0)
    assert next_step(view, 110.0) == Begin("a")


def test_other_trouble_keeps_its_words() -> None:
    trouble = troubled(None, "InvalidImageName", "no", 100.0)
    assert waiting(trouble, "x", 100.9).reason == "InvalidImageName"
