"""What a runtime is asked for, by a container's place in its pod."""

from __future__ import annotations

from sandpool.model.metadata import Key, Uid
from sandpool.node.backend import ContainerSpec, Workload, WorkloadSpec
from sandpool.node.images.image import Image, RootFs
from sandpool.node.pods.plan import container_plan

IMAGE = Image("host", "", RootFs(host=True))


def a_container(name: str) -> ContainerSpec:
    return ContainerSpec(name=name, image="host", command=("sleep", "1"))


def test_boxd_is_got_ready_where_a_router_connects_and_nowhere_else() -> None:
    first, second, before = a_container("main"), a_container("beside"), a_container("before")
    spec = WorkloadSpec(containers=(first, second), init_containers=(before,))
    workload = Workload(Uid("uid"), Key("default", "pod"), spec)
    served = [
        container_plan(workload, each, IMAGE, {}, address="", message=None, proxy_port=None, attempt=0).served
        for each in (before, first, second)
    ]
    assert served == [False, True, False]
