"""The product on a real node: pods are real containers under a real kubelet, and a user works in them with kubectl."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from node.run import ADDRESS, NAME
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import find, is_true
from sandpool.model.kinds import CLAIMS, PODS, POOLS, SANDBOXES, TEMPLATES, raw
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Type
from sandpool.model.sandbox import Sandbox
from support.images.node_image import BOXES
from support.kube.access import install
from support.kube.kubectl import Kubectl
from support.kube.process import controller
from support.kube.real_node import SUBNET, Cluster
from support.kube.stage import User, a_user

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


@pytest.fixture(scope="module")
def world(cluster: Cluster) -> Iterator[Cluster]:
    """With a controller that has the roles of an installation, as a process beside the cluster."""
    with controller(cluster.folder, install(cluster.server).kubeconfig) as one:
        one.wait_ready(leading=True)
        yield cluster
        assert one.lines("reconcile failed") == []


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    return re.sub("[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[-50:].strip("-")


@pytest.fixture
async def user(world: Cluster, namespace: str) -> AsyncIterator[User]:
    async with a_user(world, namespace) as user:  # type: ignore[arg-type]
        yield user


@pytest.fixture
def kubectl(world: Cluster, namespace: str) -> Kubectl:
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


async def test_a_pool_of_real_pods(world: Cluster, user: User) -> None:
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


async def test_a_claim_is_a_computer_to_work_in(world: Cluster, user: User, kubectl: Kubectl) -> None:
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


def a_volume(world: Cluster, name: str) -> None:
    """Storage that somebody has prepared, as an operator without a provisioner does."""
    place = world.node.folder / "volumes" / name
    place.mkdir(parents=True)
    place.chmod(0o777)  # whoever the sandbox runs as
    spec = {
        "capacity": {"storage": "1Mi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": str(place), "type": "Directory"},
    }
    world.server.request("POST", "/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})


async def test_suspend_and_resume(world: Cluster, user: User, kubectl: Kubectl) -> None:
    """The container is gone meanwhile; the files are there again afterwards."""
    for number in range(2):  # one for the claimed sandbox, one for the pool's next member
        a_volume(world, f"kept-{number}")
    storage = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Mi"}}}
    await user.create(
        TEMPLATES,
        "python",
        podTemplate=box(volumeMounts=[{"name": "data", "mountPath": "/data"}]),
        volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": storage}],
    )
    await user.pool(1)
    await user.filled(1)
    await user.claim("mine")
    name = (await user.served("mine"))["mine"]
    kubectl("exec", name, "--", "sh", "-c", "echo mine > /data/note")
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
    assert kubectl("exec", name, "--", "cat", "/data/note") == "mine\n"


@pytest.mark.parametrize("stop", ["suspend", "delete the pod"])
async def test_to_be_stopped_is_not_to_have_finished(user: User, kubectl: Kubectl, stop: str) -> None:
    """A kubelet says of a pod that it stops how its containers ended. A claim that ends with its work has to survive that."""
    await user.create(TEMPLATES, "python", podTemplate=box())
    await user.pool(1)
    await user.filled(1)
    await user.claim("mine", lifecycle={"ttlSecondsAfterFinished": 0, "shutdownPolicy": "Delete"})
    name = (await user.served("mine"))["mine"]
    first = await user.get(PODS, name)
    if stop == "suspend":
        await user.edit(SANDBOXES, name, operatingMode="Suspended")
        kubectl("wait", "--for=condition=Suspended", f"sandbox/{name}", "--timeout=60s", timeout=90)
        await user.edit(SANDBOXES, name, operatingMode="Running")
    else:
        kubectl("delete", "pod", name)

    async def back() -> bool:
        pod = await user.get(PODS, name)
        return bool(pod.metadata.uid != first.metadata.uid and pod.ready)

    await user.until(back, "the sandbox has another pod")
    assert await user.served("mine") == {"mine": name}


@pytest.mark.parametrize("strategy", ["Recreate", "RollingUpdate"])
async def test_a_template_edit_rolls_the_pool(world: Cluster, user: User, kubectl: Kubectl, strategy: str) -> None:
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
        members = await user.members()
        fresh = not {one.metadata.uid for one in members} & old
        return fresh and all(is_true(one.status.conditions, Type.READY) for one in members)

    await user.until(rolled, "every member is of the new template")
    await user.filled(3)
    pool: SandboxWarmPool = await user.get(POOLS, "python")
    assert pool.status.updated_ready_replicas == 3
    for member in await user.members():
        assert kubectl("exec", member.metadata.name, "--", "cat", "/release").strip() == BOXES[1]
    assert world.node.tasks()[container] == process  # what is claimed goes on undisturbed
    assert kubectl("exec", kept, "--", "cat", "/release").strip() == BOXES[0]
    await user.claim("fresh")
    fresh = (await user.served("fresh"))["fresh"]
    assert kubectl("exec", fresh, "--", "cat", "/release").strip() == BOXES[1]


async def test_a_container_that_dies_is_started_again(world: Cluster, user: User, kubectl: Kubectl) -> None:
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
    """Nothing that does not run is said to be ready, and a better template heals the pool."""
    await user.create(TEMPLATES, "python", podTemplate=box("sandpool.test/absent:1"))
    await user.pool(1, updateStrategy={"type": "Recreate"})
    await user.claim("mine")

    async def pulled_in_vain() -> bool:
        statuses = [pod.body["status"].get("containerStatuses", []) for pod in await user.all(raw(PODS))]
        waiting = [one["state"]["waiting"]["reason"] for (one,) in filter(None, statuses) if "waiting" in one["state"]]
        return bool(waiting) and set(waiting) <= {"ErrImagePull", "ImagePullBackOff"}

    await user.until(pulled_in_vain, "the kubelet says that there is no such image")
    assert not any(is_true(one.status.conditions, Type.READY) for one in await user.sandboxes())
    claim: SandboxClaim = await user.get(CLAIMS, "mine")
    assert not is_true(claim.status.conditions, Type.READY)
    await user.edit(TEMPLATES, "python", podTemplate=box())
    await user.filled(1)
    await user.claim("next")
    await user.served("next")


async def test_a_kubelet_that_dies(world: Cluster, user: User) -> None:
    """What is warm is still handed out; what is missing is made when it is back, and no container was lost."""
    await user.create(TEMPLATES, "python", podTemplate=box())
    await user.pool(2)
    await user.filled(2)
    containers = [await container_of(user, one.metadata.name) for one in await user.members()]
    with world.node.without_kubelet():
        await user.claim("mine")
        await user.served("mine")
    await user.filled(2)
    assert set(containers) <= set(world.node.tasks())


async def test_a_node_that_is_drained(user: User, kubectl: Kubectl) -> None:
    """Nothing on it is handed out; a claim waits for a place elsewhere, here until the node is given back. Then it has what is ready first."""
    await user.create(TEMPLATES, "python", podTemplate=box())
    await user.pool(1)
    await user.filled(1)
    warm = {one.metadata.name for one in await user.members()}
    kubectl("cordon", NAME)
    try:
        await user.claim("mine")

        async def unplaced() -> bool:
            scheduled = [
                find(one.status.conditions, Type.POD_SCHEDULED)
                for one in await user.sandboxes()
                if one.metadata.name not in warm
            ]
            return any(one is not None and one.reason == "Unschedulable" for one in scheduled)

        await user.until(unplaced, "a sandbox of the claim's own has no node to go to")
        [claim] = await user.all(CLAIMS)
        assert claim.status.sandbox is None
    finally:
        kubectl("uncordon", NAME)
    await user.served("mine")
