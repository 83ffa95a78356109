"""Whether a pod is past a limit, in Kubernetes' words."""

from __future__ import annotations

from sandpool.node.disk.plan import GIB, allowance
from sandpool.node.disk.usage import Limits, Used, eviction_message, low_message, nearest_limit, quantity

MIB = 1 << 20


def test_the_pod_as_a_whole() -> None:
    limits = Limits(pod=10 * GIB)
    assert eviction_message(Used({"a": 4 * GIB}, {"v": 4 * GIB}, hidden=2 * GIB), limits) == ""
    assert eviction_message(Used({"a": 4 * GIB}, {"v": 4 * GIB}, hidden=2 * GIB + 1), limits) == (
        "Pod ephemeral local storage usage exceeds the total limit of containers 10Gi. "
    )


def test_a_container_and_a_volume() -> None:
    limits = Limits(containers={"a": MIB}, volumes={"v": MIB})
    assert eviction_message(Used({"a": MIB}, {"v": MIB}), limits) == ""
    assert eviction_message(Used({"a": MIB + 1}), limits) == (
        'Container a exceeded its local ephemeral storage limit "1Mi". '
    )
    assert (
        eviction_message(Used({}, {"v": MIB + 1}), limits) == 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '
    )


def test_no_limit() -> None:
    assert eviction_message(Used({"a": 1 << 60}), Limits()) == ""
    assert nearest_limit(Used({"a": 1 << 60}), Limits()) == (None, GIB)


def test_the_nearest_limit_counts() -> None:
    limits = Limits(pod=100 * GIB, containers={"a": 50 * GIB}, volumes={"v": GIB})
    assert nearest_limit(Used({"a": 40 * GIB}), limits) == (GIB, GIB)
    assert nearest_limit(Used({"a": 49 * GIB + 1}), limits) == (GIB - 1, 5 * GIB)
    assert nearest_limit(Used({"a": 40 * GIB}, hidden=10 * GIB), limits) == (0, 5 * GIB)


def test_words() -> None:
    assert [quantity(size) for size in (10 * GIB, 300 * MIB, 2048, 1001, 0)] == ["10Gi", "300Mi", "2Ki", "1001", "0"]
    assert low_message(Used({"a": 2048}, beyond=1), Limits(request=MIB), "ephemeral-storage") == (
        "The node was low on resource: ephemeral-storage. 3Ki is in use by the pod, which requested 1Mi."
    )
    assert (allowance(GIB), allowance(100 * GIB)) == (GIB, 10 * GIB)
