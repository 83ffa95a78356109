from __future__ import annotations

import msgspec
import pytest

from sandpool.controllers.sandbox.release import (
    IN_HAND,
    Ask,
    HeadStart,
    Wait,
    left_behind,
    next_step,
    only_claim,
    releases,
)
from sandpool.controllers.sandbox.steps import Delete
from sandpool.kube.api import Preconditions
from sandpool.model.metadata import Metadata, OwnerReference, Revision, Uid
from sandpool.model.sandbox import Sandbox
from unit.controllers.sandbox.views import CLAIM, POOL, pod, sandbox


def step(*, released: bool, now: float) -> object:
    return next_step(sandbox(owner=CLAIM), released=released, since=10.0, now=now, head_start=0.25)


def test_the_collector_has_a_head_start() -> None:
    assert step(released=True, now=10.0) == Wait(0.25)
    assert step(released=False, now=10.125) == Wait(0.125)


def test_what_the_collector_has_in_hand_it_keeps_for_longer() -> None:
    head_start, released = HeadStart(0.25, 2.0), [Uid(str(number)) for number in range(100)]
    assert [head_start.of(one, released) for one in released] == [2.0] * IN_HAND + [0.25] * (100 - IN_HAND)
    assert head_start.of(Uid("x"), released) == 0.25
    assert HeadStart(5.0, 2.0).of(Uid("0"), released) == 5.0


def test_what_is_known_to_be_released_is_deleted_as_it_was_seen() -> None:
    found = step(released=True, now=10.25)
    assert isinstance(found, Delete)
    assert str(found) == "delete sandbox box: its claim was released"
    assert found.preconditions == Preconditions(Uid("uid-box"), Revision(7))


def test_whether_a_claim_that_nobody_saw_go_is_gone_is_asked() -> None:
    assert step(released=False, now=11.0) == Ask()


def also_owned(box: Sandbox) -> Sandbox:
    other = OwnerReference(api_version="v1", kind="ConfigMap", name="other", uid=Uid("u-other"))
    references = (*box.metadata.owner_references, other)
    return msgspec.structs.replace(box, metadata=msgspec.structs.replace(box.metadata, owner_references=references))


def test_whose_sandboxes_are_released() -> None:
    found = only_claim(sandbox(owner=CLAIM))
    assert found is not None
    assert found.kind == "SandboxClaim"
    assert only_claim(sandbox(owner=POOL)) is None
    assert only_claim(sandbox()) is None
    assert only_claim(also_owned(sandbox(owner=CLAIM))) is None, "somebody else may want to keep it"


@pytest.mark.parametrize(
    ("finalizers", "goes"),
    [((), True), (("orphan",), False), (("foregroundDeletion",), True), (("x/y", "orphan"), False)],
)
def test_an_orphaned_claim_releases_nothing(finalizers: tuple[str, ...], goes: bool) -> None:
    assert releases(Metadata(name="mine", finalizers=finalizers)) is goes


def test_only_pods_of_that_very_sandbox_are_left_behind() -> None:
    mine = pod()
    assert [str(one) for one in left_behind(Uid("uid-box"), [mine], lambda _: False)] == [
        "delete pod box: its sandbox was released"
    ]
    assert left_behind(Uid("uid-box"), [mine], lambda _: True) == (), "it leaves already"
    assert left_behind(Uid("another"), [mine], lambda _: False) == ()
    (found,) = left_behind(Uid("uid-box"), [mine], lambda _: False)
    assert found.preconditions == Preconditions(mine.metadata.uid, mine.metadata.revision)
