"""The product on a real node: pods are real containers under a real kubelet, and a user works in them with kubectl."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from node.run import ADDRESS
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import find, is_true
from sandpool.model.kinds import CLAIMS, PODS, POOLS, SANDBOXES, TEMPLATES, raw
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from support import kube_server, real_node
from support.kube_access import install
from support.kube_process import Controller, controller
from support.kube_server import KubeServer
from support.kube_stage import User, a_user
from support.kubectl import Kubectl
from support.node_image import BOXES
from support.real_node import SUBNET, RealNode

pytestmark = [pytest.mark.node, pytest.mark.timeout(300)]

HARDENED = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
LIMITS = {"limits": {"cpu": "500m", "memory": "32Mi"}, "requests": {"cpu": "10m", "memory": "8Mi"}}


@dataclass(frozen=True, slots=True)
class World:
    """Made once: servers, a node, a controller with the roles of an installation."""

    server: KubeServer
    node: RealNode
    controller: Controller
    folder: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if lacking := real_node.lacking() or kube_server.lacking():
        pytest.skip(lacking)
    folder = tmp_path_factory.mktemp("world")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(kube_server.running(accounts=True))
        node = stack.enter_context(real_node.real_node(server))
        one = stack.enter_context(controller(folder, install(server).kubeconfig))
        one.wait_ready(leading=True)
        yield World(server, node, one, folder)
        assert one.lines("reconcile failed") == []


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    return re.sub("[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[-50:].strip("-")


@pytest.fixture
async def user(world: World, namespace: str) -> AsyncIterator[User]:
    async with a_user(world, namespace) as user:  # type: ignore[arg-type]  # it asks for the server only
        yield user


@pytest.fixture
def kubectl(world: World, namespace: str) -> Kubectl:
    return Kubectl(world.server.kubeconfig, world.folder, namespace)


def box(image: str = BOXES[0], **more: Any) -> dict[str, Any]:
    """A template's pod, hardened as the documentation asks for."""
    container = {"name": "main", "image": image, "securityContext": HARDENED, "resources": LIMITS, **more}
    return {"spec": {"containers": [container], "terminationGracePeriodSeconds": 5}}


async def container_of(user: User, name: str) -> str:
    """The id of the pod's container, as the runtime knows it."""
    pod = await user.get(raw(PODS), name)
    (status,) = pod.body["status"]["containerStatuses"]
    return str(status["containerID"]).removeprefix("containerd://")


async def test_a_pool_of_real_pods(world: World, user: User) -> None:
    await user.create(TEMPLATES, "python", podTemplate=box())
    await user.pool(3)
    await user.filled(3)
    tasks = world.node.tasks()
    for pod in await user.all(raw(PODS)):
        status = pod.body["status"]
        assert status["phase"] == "Running"
        assert status["hostIP"] == ADDRESS
        assert ip_address(status["podIP"]) in ip_network(SUBNET)
        process = tasks[await container_of(user, pod.metadata.name)]
        groups = Path(f"/proc/{process}/cgroup").read_text()
        assert f"/{world.node.folder.parent.name}/kubepods/" in groups
    for member in await user.members():
        assert member.status.pod_ips


async def test_a_claim_is_a_computer_to_work_in(world: World, user: User, kubectl: Kubectl) -> None:
    await user.create(TEMPLATES, "python", podTemplate=box())
    await user.pool(2)
    await user.filled(2)
    await user.claim("mine")
    name = (await user.served("mine"))["mine"]
    assert kubectl("exec", name, "--", "cat", "/release").strip() == BOXES[0]
    assert kubectl("exec", "-i", name, "--", "cat", stdin="through and back") == "through and back"
    assert kubectl.run("exec", name, "--", "sh", "-c", "exit 7").code == 7
    claim: SandboxClaim = await user.get(CLAIMS, "mine")
    assert claim.status.sandbox is not None
    (address,) = claim.status.sandbox.pod_ips
    assert f"src {address}" in kubectl("exec", name, "--", "ip", "route")
    await user.filled(2)
    await user.delete(CLAIMS, "mine")
    container = await container_of(user, name)

    async def gone() -> bool:
        return container not in world.node.tasks()

    await user.until(gone, "the container of the released sandbox has ended")


async def test_hardening_is_in_force(user: User, kubectl: Kubectl) -> None:
    await user.create(TEMPLATES, "python", podTemplate=box())
    await user.pool(1)
    await user.filled(1)
    await user.claim("mine")
    name = (await user.served("mine"))["mine"]
    status = dict(
        line.split(":\t")
        for line in kubectl("exec", name, "--", "cat", "/proc/self/status").splitlines()
        if ":\t" in line
    )
    assert status["Seccomp"] == "2"
    assert status["NoNewPrivs"] == "1"
    assert int(status["CapBnd"], 16) == 0
    assert kubectl("exec", name, "--", "id", "-u").strip() == "65532"
    assert kubectl.run("exec", name, "--", "ls", "/var/run/secrets/kubernetes.io").code != 0
    assert "Read-only file system" in kubectl.run("exec", name, "--", "touch", "/mine").err


async def test_suspend_and_resume(world: World, user: User, kubectl: Kubectl) -> None:
    await user.create(TEMPLATES, "python", podTemplate=box())
    await user.pool(1)
    await user.filled(1)
    await user.claim("mine")
    name = (await user.served("mine"))["mine"]
    first, container = await user.get(PODS, name), await container_of(user, name)
    assert container in world.node.tasks()
    await user.edit(SANDBOXES, name, operatingMode="Suspended")

    async def suspended() -> bool:
        sandbox: Sandbox = await user.get(SANDBOXES, name)
        pods = {pod.metadata.name for pod in await user.all(PODS)}
        return is_true(sandbox.status.conditions, Type.SUSPENDED) and name not in pods

    await user.until(suspended, "the sandbox is suspended and has no pod")
    assert container not in world.node.tasks()
    await user.edit(SANDBOXES, name, operatingMode="Running")

    async def resumed() -> bool:
        sandbox: Sandbox = await user.get(SANDBOXES, name)
        claim: SandboxClaim = await user.get(CLAIMS, "mine")
        return is_true(sandbox.status.conditions, Type.READY) and is_true(claim.status.conditions, Type.READY)

    await user.until(resumed, "sandbox and claim are Ready again")
    assert (await user.get(PODS, name)).metadata.uid != first.metadata.uid
    assert kubectl("exec", name, "--", "cat", "/release").strip() == BOXES[0]


@pytest.mark.parametrize("strategy", ["Recreate", "RollingUpdate"])
async def test_a_template_edit_rolls_the_pool(world: World, user: User, kubectl: Kubectl, strategy: str) -> None:
    await user.create(TEMPLATES, "python", podTemplate=box())
    await user.pool(3, updateStrategy={"type": strategy})
    await user.filled(3)
    await user.claim("kept")
    kept = (await user.served("kept"))["kept"]
    container = await container_of(user, kept)
    process = world.node.tasks()[container]
    await user.filled(3)
    old = {one.metadata.uid for one in await user.members()}
    await user.edit(TEMPLATES, "python", podTemplate=box(BOXES[1]))

    async def rolled() -> bool:
        pool: SandboxWarmPool = await user.get(POOLS, "python")
        uids = {one.metadata.uid for one in await user.members()}
        return not uids & old and pool.status.updated_ready_replicas == pool.status.replicas == 3

    await user.until(rolled, "every member is of the new template")
    for member in await user.members():
        assert kubectl("exec", member.metadata.name, "--", "cat", "/release").strip() == BOXES[1]
    assert world.node.tasks()[container] == process  # what is claimed goes on undisturbed
    assert kubectl("exec", kept, "--", "cat", "/release").strip() == BOXES[0]
    await user.claim("fresh")
    fresh = (await user.served("fresh"))["fresh"]
    assert kubectl("exec", fresh, "--", "cat", "/release").strip() == BOXES[1]


async def test_a_container_that_dies_is_started_again(world: World, user: User, kubectl: Kubectl) -> None:
    await user.create(TEMPLATES, "python", podTemplate=box())
    await user.pool(1)
    await user.filled(1)
    await user.claim("mine")
    name = (await user.served("mine"))["mine"]
    first = await container_of(user, name)
    os.kill(world.node.tasks()[first], signal.SIGKILL)

    async def again() -> bool:
        sandbox: Sandbox = await user.get(SANDBOXES, name)
        started = await container_of(user, name)
        return started != first and started in world.node.tasks() and is_true(sandbox.status.conditions, Type.READY)

    await user.until(again, "another container runs in the same sandbox")
    assert (await user.served("mine"))["mine"] == name
    assert kubectl("exec", name, "--", "echo", "alive").strip() == "alive"


async def test_an_image_that_cannot_be_had(user: User) -> None:
    await user.create(TEMPLATES, "python", podTemplate=box("sandpool.test/absent:1"))
    await user.pool(1)

    async def told() -> bool:
        (member,) = await user.members()
        ready = find(member.status.conditions, Type.READY)
        return ready is not None and ready.status == "False" and "absent:1" in ready.message

    await user.until(told, "the sandbox says which image is missing")


async def test_a_kubelet_that_dies(world: World, user: User) -> None:
    """What is warm is still handed out; what is missing is made when it is back, and no container was lost."""
    await user.create(TEMPLATES, "python", podTemplate=box())
    await user.pool(2)
    await user.filled(2)
    containers = [await container_of(user, one.metadata.name) for one in await user.members()]
    world.node.end("kubelet", kill=True)
    try:
        await user.claim("mine")
        await user.served("mine")
    finally:
        real_node.start_kubelet(world.node)
    await user.filled(2)
    assert set(containers) <= set(world.node.tasks())
