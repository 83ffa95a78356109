"""To whom a pod can have given something."""

from __future__ import annotations

from sandpool.local.backends.base import Workload, WorkloadSpec
from sandpool.local.backends.pods.holding import reached
from sandpool.local.volumes.spec import Claim, EmptyDir, HostPath, VolumeSpec
from sandpool.model.metadata import Key, Uid


def work(name: str, *claims: str, host: bool = False, namespace: str = "team") -> Workload:
    volumes = [VolumeSpec(claim, Claim(namespace, claim, claim)) for claim in claims]
    volumes += [VolumeSpec("own", EmptyDir()), *([VolumeSpec("host", HostPath("/srv"))] if host else [])]
    return Workload(Uid(name), Key(namespace, name), WorkloadSpec(), volumes=tuple(volumes))


def names(ended: Workload, *others: Workload) -> set[str]:
    return {each.key.name for each in reached(ended, (ended, *others))}


def test_only_those_who_share_a_volume() -> None:
    assert names(work("a", "x"), work("b", "x"), work("c", "y"), work("d")) == {"b"}
    assert names(work("a"), work("b"), work("c", "x")) == set()


def test_also_by_way_of_each_other() -> None:
    assert names(work("a", "x"), work("c", "y", "z"), work("b", "x", "y"), work("d", "z"), work("e", "v")) == {
        "b",
        "c",
        "d",
    }


def test_folders_of_the_machine_are_shared_too() -> None:
    assert names(work("a", host=True), work("b", host=True), work("c")) == {"b"}


def test_nobody_of_another_tenant() -> None:
    other = work("b", host=True, namespace="other")
    assert names(work("a", host=True), other) == set()
