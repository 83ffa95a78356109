"""Pods that really run: references, probes, hooks, init containers, restarts of sandpool, suspend and resume."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandpool.model.kinds import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS
from sandpool.node.backend import Probe
from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime
from support.node.pods_node import Body, PodsNode, a_pods_node, runtime_of
from support.simulated.kubelet_node import a_pod, condition

HIDDEN = "hunter2"


def ready(pod: Body | None) -> bool:
    return pod is not None and condition(pod, "Ready") == "True"


def restarted(times: int) -> Any:
    def check(pod: Body | None) -> bool:
        return ready(pod) and pod is not None and pod["status"]["containerStatuses"][0]["restartCount"] >= times

    return check


def over(pod: Body | None) -> bool:
    return pod is not None and pod["status"]["phase"] in ("Succeeded", "Failed")


def running(script: str, *, name: str = "main", **fields: Any) -> Body:
    return {"name": name, "image": "host", "command": ["sh", "-c", script], **fields}


TRIED: dict[str, Probe] = {}


async def skip_unless_it_works(name: str, folder: Path) -> None:
    if name not in TRIED:
        TRIED[name] = await runtime_of(name, folder / "try" / "runtime").probe()
    if not TRIED[name].available:
        pytest.skip(f"{TRIED[name].reason}: {TRIED[name].message}")


@pytest.fixture(params=["process", "namespaces"])
async def node(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PodsNode]:
    await skip_unless_it_works(request.param, tmp_path)
    async with a_pods_node(request.param, tmp_path) as found:
        yield found


@pytest.fixture
async def mounting(tmp_path: Path) -> AsyncIterator[PodsNode]:
    """One whose pods can have volumes."""
    await skip_unless_it_works("namespaces", tmp_path)
    async with a_pods_node("namespaces", tmp_path) as found:
        yield found


async def secret(node: PodsNode) -> None:
    data = {"p": base64.b64encode(HIDDEN.encode()).decode()}
    await node.api.create(SECRETS, {"metadata": {"name": "s"}, "data": data}, "default")


async def test_variables_reach_the_program(node: PodsNode) -> None:
    env = [
        {"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "BOTH", "value": "$(P)@$(IP)"},
    ]
    script = 'echo "$BOTH"; echo "$0"; sleep 1000'
    body = a_pod(containers=[{**running(script, env=env), "args": ["arg-$(P)"]}])
    await node.create(body)
    await node.until(lambda pod: pod is not None and "secret" in str(pod["status"].get("containerStatuses")))
    await secret(node)
    pod = await node.until(ready)
    async with asyncio.timeout(10):
        while "arg" not in (text := await node.log()):
            await asyncio.sleep(0.01)
    assert text.split() == [f"{HIDDEN}@{pod['status']['podIP']}", f"arg-{HIDDEN}"]
    assert HIDDEN not in str(node.heard.heard) + str(pod)


async def test_a_pod_that_finishes_says_how(node: PodsNode) -> None:
    await node.create(a_pod(containers=[running("exit 3")], restartPolicy="Never"))
    pod = await node.until(over)
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (pod["status"]["phase"], ended["exitCode"], ended["reason"]) == ("Failed", 3, "Error")


async def test_a_probe_runs_inside_and_a_failure_restarts(node: PodsNode) -> None:
    probe = {"exec": {"command": ["sh", "-c", 'test -z "$BAD" || { echo broken; exit 1; }']}, "periodSeconds": 1}
    good = running("sleep 1000", readinessProbe=probe, livenessProbe=probe)
    bad = running("sleep 1000", env=[{"name": "BAD", "value": "1"}], livenessProbe={**probe, "failureThreshold": 1})
    await node.create(a_pod("good", containers=[good]))
    await node.create(a_pod("bad", containers=[bad], terminationGracePeriodSeconds=1))
    await node.until(ready, "good")
    pod = await node.until(
        lambda pod: pod is not None and pod["status"].get("containerStatuses", [{}])[0].get("restartCount", 0) >= 1,
        "bad",
    )
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] in (137, 143)
    assert "Liveness probe failed: broken" in node.heard.of("Unhealthy")
    assert (await node.get("good"))["status"]["containerStatuses"][0]["restartCount"] == 0


@pytest.mark.skipif(shutil.which("python3") is None, reason="the machine has no python3")
async def test_a_port_is_asked_inside(node: PodsNode) -> None:
    with socket.socket() as free:  # a runtime without a network of its own shares ours
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = running(
        f"exec python3 -m http.server --bind 127.0.0.1 {port}",
        readinessProbe={"httpGet": {"port": port, "path": "/"}, "periodSeconds": 1},
    )
    await node.create(a_pod(containers=[serve]))
    await node.until(ready)


async def test_an_init_container_fails_and_then_does_not(mounting: PodsNode) -> None:
    first = running("test -e /data/tried || { touch /data/tried; exit 1; }", name="first")
    mount = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    side = {**running("sleep 1000", name="side"), "restartPolicy": "Always"}
    body = a_pod(
        initContainers=[{**first, **mount}, side],
        containers=[running("sleep 1000")],
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    await mounting.create(body)
    pod = await mounting.until(ready)
    init, sidecar = pod["status"]["initContainerStatuses"]
    assert (init["restartCount"], init["state"]["terminated"]["exitCode"]) == (1, 0)
    assert (sidecar["ready"], "running" in sidecar["state"]) == (True, True)


async def test_a_restart_of_sandpool(node: PodsNode) -> None:
    await node.create(a_pod("again", containers=[running("sleep 1000")]))
    await node.create(a_pod("once", containers=[running("sleep 1000")], restartPolicy="Never"))
    before = await node.until(ready, "again")
    await node.until(ready, "once")
    await node.restart()
    pod = await node.until(restarted(1), "again")
    status = pod["status"]["containerStatuses"][0]
    assert status["lastState"]["terminated"]["reason"] == "SandpoolRestarted"
    assert pod["status"]["podIP"] == before["status"]["podIP"]
    lost = await node.until(over, "once")
    assert (lost["status"]["phase"], lost["status"]["reason"]) == ("Failed", "SandpoolRestarted")
    for name in ("again", "once"):
        await node.gone(name)


async def test_files_from_objects(mounting: PodsNode) -> None:
    await secret(mounting)
    await mounting.api.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"k": "from config"}}, "default")
    volumes = [
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "c", "configMap": {"name": "c", "items": [{"key": "k", "path": "deep/file"}]}},
        {"name": "d", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    mounts = [{"name": name, "mountPath": f"/files/{name}", "readOnly": True} for name in "scd"]
    script = "cat /files/s/p; echo; cat /files/c/deep/file; echo; cat /files/d/name; echo"
    await mounting.create(
        a_pod(containers=[running(script, volumeMounts=mounts)], volumes=volumes, restartPolicy="Never")
    )
    pod = await mounting.until(over)
    assert pod["status"]["phase"] == "Succeeded", await mounting.log()
    assert (await mounting.log()).splitlines() == [HIDDEN, "from config", "p"]


async def test_a_claim_is_kept_over_suspend_and_resume_and_goes_with_its_object(mounting: PodsNode) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    await mounting.api.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "data"}, "spec": spec}, "default")
    bye = {"preStop": {"exec": {"command": ["sh", "-c", "echo bye >> /data/log"]}}}
    main = running(
        "echo hello >> /data/log; cat /data/log; sleep 1000",
        volumeMounts=[{"name": "v", "mountPath": "/data"}],
        lifecycle=bye,
        readinessProbe={"exec": {"command": ["test", "-s", "/data/log"]}, "periodSeconds": 1},
    )
    body = a_pod(
        containers=[main],
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        terminationGracePeriodSeconds=5,
    )
    await mounting.create(body)
    await mounting.until(ready)
    await mounting.gone()  # suspended
    await mounting.restart()  # and sandpool is restarted meanwhile
    await mounting.create(body)  # resumed
    await mounting.until(ready)
    async with asyncio.timeout(10):
        while (await mounting.log()).split() != ["hello", "bye", "hello"]:
            await asyncio.sleep(0.01)
    await mounting.api.delete(PERSISTENT_VOLUME_CLAIMS, "data", "default")
    await mounting.gone()
    async with asyncio.timeout(10):
        while await mounting.volumes.claims():
            await asyncio.sleep(0.01)


async def test_the_death_of_a_shim_is_no_crash_of_a_pod(mounting: PodsNode) -> None:
    """Three times: a container that ended so often by itself would wait longer each time, and its pod would say so."""
    node = mounting
    seen: list[Body] = []

    def watched(times: int) -> Any:
        def check(pod: Body | None) -> bool:
            seen.extend([pod] if pod is not None else [])
            return bool(restarted(times)(pod))

        return check

    await node.create(a_pod(containers=[running("exec sleep 1000")]))
    await node.until(ready)
    for times in (1, 2, 3):
        runtime = node.backend.runtime
        assert isinstance(runtime, NamespacesRuntime)
        (sandbox,) = runtime.runtime_host.sandboxes
        assert sandbox.shim is not None
        assert sandbox.shim.pid is not None
        os.kill(sandbox.shim.pid, signal.SIGKILL)
        found = await node.until(watched(times))
        status = found["status"]["containerStatuses"][0]
        ended = status["lastState"]["terminated"]
        assert (status["restartCount"], ended["reason"], ended["exitCode"]) == (times, "SandboxLost", 137)
        assert ended["message"] == "the sandbox was ended from outside"
    states = [status["state"] for pod in seen for status in pod["status"].get("containerStatuses", ())]
    assert not [state for state in states if state.get("waiting", {}).get("reason") == "CrashLoopBackOff"]
    assert not [reason for reason in node.heard.reasons() if reason == "BackOff"]
