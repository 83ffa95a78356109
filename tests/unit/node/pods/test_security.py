"""Who a container runs as, what it may use, and what is refused."""

from __future__ import annotations

import signal
from datetime import UTC, datetime

import pytest

from sandpool.base.errors import NodeError
from sandpool.node.backend import (
    Capabilities,
    ContainerSpec,
    PodSecurityContext,
    Resources,
    SecurityContext,
    WorkloadSpec,
)
from sandpool.node.images.image import ImageConfig
from sandpool.node.pods.containers import exit_of, start_exit, stop_signal
from sandpool.node.pods.limits import container_limits, pod_limits
from sandpool.node.pods.security import check_container, groups, user
from sandpool.node.runtimes.contract import Ended, Limits


@pytest.mark.parametrize(
    ("container", "pod", "image", "made"),
    [
        ({}, {}, "", ""),
        ({}, {}, "app", "app"),
        ({}, {}, "app:staff", "app:staff"),
        ({"run_as_user": 5}, {"run_as_user": 6}, "app:staff", "5"),
        ({}, {"run_as_user": 6, "run_as_group": 7}, "app", "6:7"),
        ({"run_as_group": 8}, {"run_as_group": 7}, "app:staff", "app:8"),
        ({"run_as_group": 8}, {}, "", "0:8"),
        ({"run_as_user": 0}, {"run_as_user": 6}, "app", "0"),
        ({"run_as_non_root": True}, {}, "1000", "1000"),
        ({"run_as_non_root": False}, {"run_as_non_root": True}, "", ""),
    ],
)
def test_user(container: dict[str, int], pod: dict[str, int], image: str, made: str) -> None:
    spec = ContainerSpec(security_context=SecurityContext(**container))  # type: ignore[arg-type]
    assert user(spec, PodSecurityContext(**pod), ImageConfig(user=image)) == made  # type: ignore[arg-type]


@pytest.mark.parametrize("image", ["", "root", "0", "0:5", "000", "app"])
def test_non_root_is_insisted_on(image: str) -> None:
    spec = ContainerSpec(name="main", security_context=SecurityContext(run_as_non_root=True))
    with pytest.raises(NodeError) as error:
        user(spec, PodSecurityContext(), ImageConfig(user=image))
    assert error.value.reason == "CreateContainerConfigError"


def test_ordinary_capabilities_may_be_asked_for() -> None:
    check_container(
        ContainerSpec(security_context=SecurityContext(capabilities=Capabilities(add=("CAP_CHOWN", "kill"))))
    )
    for wish in ("NET_ADMIN", "ALL", "cap_sys_admin"):
        with pytest.raises(NodeError):
            check_container(ContainerSpec(security_context=SecurityContext(capabilities=Capabilities(add=(wish,)))))


def test_groups() -> None:
    assert groups(PodSecurityContext(fs_group=5, supplemental_groups=(6, 5))) == (5, 6)


def a_container(**limits: str) -> ContainerSpec:
    return ContainerSpec(
        name="main", resources=Resources(limits={name.replace("_", "-"): text for name, text in limits.items()})
    )


def test_limits() -> None:
    spec = a_container(cpu="1500m", memory="1.5Gi", ephemeral_storage="1G")
    assert container_limits(spec) == Limits(cpu=1.5, memory=3 << 29, storage=10**9)
    assert container_limits(a_container()) == Limits()
    assert container_limits(a_container(cpu="0")) == Limits()
    for wrong in (a_container(memory="lots"), a_container(gpu="1")):
        with pytest.raises(NodeError, match="main"):
            container_limits(wrong)


def test_a_pods_limits_are_known_if_all_its_containers_are() -> None:
    one, two = a_container(cpu="1", memory="1Gi"), a_container(cpu="2")
    init = a_container(cpu="5", memory="1")
    side = ContainerSpec(restart_policy="Always", resources=Resources(limits={"cpu": "3"}))
    made = pod_limits(WorkloadSpec(containers=(one, two), init_containers=(init,)), 10)
    assert made == Limits(cpu=5, memory=None, pids=10)
    assert pod_limits(WorkloadSpec(containers=(one, two), init_containers=(init, side)), None).cpu == 6


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", signal.SIGTERM),
        ("SIGINT", signal.SIGINT),
        ("quit", signal.SIGQUIT),
        ("9", 9),
        ("SIGRTMIN+3", 37),
        ("99", signal.SIGTERM),
        ("NONSENSE", signal.SIGTERM),
    ],
)
def test_stop_signal(text: str, number: int) -> None:
    assert stop_signal(text) == number


def test_ends() -> None:
    one, two = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    end = exit_of(Ended(137, signal=9, oom=True, message="runtime"), one, two, "own words")
    assert (end.reason, end.message, end.started_at, end.at) == ("OOMKilled", "own words", one, two)
    assert exit_of(Ended(3, message="runtime"), one, two, "").message == "runtime"
    assert exit_of(Ended(-7), two, one, "").code == 255
    assert exit_of(Ended(0), two, one, "").at == two, "a clock that was set back does not make it end before it began"
    cannot = start_exit(NodeError("StartError", "no such file"), one)
    assert cannot is not None
    assert (cannot.code, cannot.reason) == (128, "StartError")
    assert start_exit(NodeError("DiskFull", ""), one) is None
