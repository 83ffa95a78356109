"""Probes and hooks on a node in virtual time: what a pod's status says, when a container is restarted, what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sandpool.base.clock import LoopClock
from sandpool.node.kubelet.agent import KubeletServices
from sandpool.node.runtimes.fake import FakeOptions
from support.api.heard_events import HeardEvents
from support.node.answering_backend import AnsweringBackend
from support.simulated.kubelet_node import ANode, Body, a_node, a_pod, condition

pytestmark = pytest.mark.looptime


def asks(word: str, **fields: int) -> Body:
    return {"exec": {"command": [word]}, **fields}


def probed(name: str = "p", **container: Any) -> Body:
    spec = {key: container.pop(key) for key in ("terminationGracePeriodSeconds", "restartPolicy") if key in container}
    return a_pod(name, containers=[{"name": "main", "image": "host", **container}], **spec)


@asynccontextmanager
async def answering(**options: Any) -> AsyncIterator[tuple[ANode, AnsweringBackend, HeardEvents]]:
    made: list[AnsweringBackend] = []

    def make(clock: LoopClock) -> AnsweringBackend:
        made.append(AnsweringBackend(clock, **options))
        return made[-1]

    heard = HeardEvents()
    async with a_node(make_backend=make, around=KubeletServices(heard)) as node:
        yield node, made[0], heard


def main_status(pod: Body) -> Body:
    found: Body = pod["status"]["containerStatuses"][0]
    return found


async def test_a_container_is_ready_when_its_probe_says_so_and_no_longer() -> None:
    async with answering() as (node, backend, heard):
        backend.codes["ready"] = 1
        await node.create(probed(readinessProbe=asks("ready", periodSeconds=5, failureThreshold=2)))
        await asyncio.sleep(20)
        pod = await node.get()
        assert (pod["status"]["phase"], condition(pod, "Ready")) == ("Running", "False")
        assert (main_status(pod)["started"], main_status(pod)["ready"]) == (True, False)
        assert heard.of("Unhealthy")[0] == "Readiness probe failed: it says [31mno"
        backend.codes["ready"] = 0
        await asyncio.sleep(5)
        assert condition(await node.get(), "Ready") == "True"
        backend.codes["ready"] = 1
        await asyncio.sleep(5)
        assert condition(await node.get(), "Ready") == "True"
        await asyncio.sleep(5)
        assert condition(await node.get(), "Ready") == "False"
        assert main_status(await node.get())["restartCount"] == 0


async def test_a_probe_costs_no_write_while_nothing_changes() -> None:
    async with answering() as (node, backend, heard):
        backend.codes |= {"ready": 0, "alive": 0}
        await node.create(probed(readinessProbe=asks("ready"), livenessProbe=asks("alive", periodSeconds=1)))
        await asyncio.sleep(30)
        node.api.clear()
        await asyncio.sleep(600)
        assert backend.asked["alive"] >= 600
        assert node.api.count("patch_status", "pods") == 0
        assert heard.heard == []


async def test_probes_of_a_plain_pod_cost_nothing() -> None:
    async with answering() as (node, backend, _):
        await node.create(a_pod())
        await asyncio.sleep(60)
        assert not backend.asked
        assert node.api.count("get") == 0


async def test_a_container_that_is_not_alive_is_ended_and_started_again() -> None:
    async with answering() as (node, backend, heard):
        backend.codes["alive"] = lambda before: int(before >= 2)
        probe = asks("alive", periodSeconds=2, failureThreshold=3, terminationGracePeriodSeconds=4)
        await node.create(probed(livenessProbe=probe))
        await asyncio.sleep(5)
        assert main_status(await node.get())["restartCount"] == 0
        await asyncio.sleep(5)
        pod = await node.get()
        assert main_status(pod)["restartCount"] == 1
        assert main_status(pod)["lastState"]["terminated"]["exitCode"] == 143
        assert {grace for _, grace in backend.ended} == {4.0}
        assert heard.of("Killing") == ["Container main failed liveness probe, will be restarted"]
        await asyncio.sleep(60)
        assert main_status(await node.get())["restartCount"] > 1, "and again, later"


async def test_a_slow_start_is_waited_for_and_nothing_else_is_asked() -> None:
    async with answering() as (node, backend, _):
        backend.codes |= {"up": 1, "alive": 0, "ready": 0}
        await node.create(
            probed(
                startupProbe=asks("up", periodSeconds=2, failureThreshold=10),
                livenessProbe=asks("alive", periodSeconds=1),
                readinessProbe=asks("ready", periodSeconds=60),
            )
        )
        await asyncio.sleep(8)
        pod = await node.get()
        assert (main_status(pod)["started"], main_status(pod)["ready"]) == (False, False)
        assert (backend.asked["alive"], backend.asked["ready"]) == (0, 0)
        backend.codes["up"] = 0
        await asyncio.sleep(3)
        pod = await node.get()
        assert (main_status(pod)["started"], condition(pod, "Ready")) == (True, "True")
        asked = backend.asked["up"]
        await asyncio.sleep(60)
        assert backend.asked["up"] == asked, "it is not asked again"


async def test_a_start_that_takes_too_long_is_ended() -> None:
    async with answering() as (node, backend, heard):
        backend.codes["up"] = 1
        await node.create(probed(startupProbe=asks("up", periodSeconds=1, failureThreshold=3), restartPolicy="Never"))
        await asyncio.sleep(10)
        pod = await node.get()
        assert pod["status"]["phase"] == "Failed"
        assert heard.of("Killing") == ["Container main failed startup probe, will be restarted"]
        asked = backend.asked["up"]
        first, *_, last = (at for at, word in backend.at if word == "up")
        assert last - first == pytest.approx(2.0, abs=0.1), "three periods, whatever is asked in between"
        await asyncio.sleep(60)
        assert backend.asked["up"] == asked


async def test_what_is_up_soon_is_seen_soon() -> None:
    async with answering() as (node, backend, heard):
        backend.codes["ready"] = lambda before: int(before < 3)
        await node.create(probed(readinessProbe=asks("ready", periodSeconds=10)))
        await asyncio.sleep(1)
        assert condition(await node.get(), "Ready") == "True"
        assert heard.heard == [], "what is just starting is no trouble"


async def test_a_probe_that_takes_too_long_fails_and_is_cut() -> None:
    async with answering() as (node, backend, heard):
        backend.codes["ready"], backend.slow["ready"] = 0, 30.0
        await node.create(probed(readinessProbe=asks("ready", timeoutSeconds=2)))
        await asyncio.sleep(15)
        assert condition(await node.get(), "Ready") == "False"
        assert heard.of("Unhealthy") == ['Readiness probe failed: command: "ready" timed out after 2s']
        assert backend.cancelled > 1


async def test_a_command_that_is_not_there_is_a_failure_with_words() -> None:
    async with answering() as (node, _, heard):
        await node.create(probed(readinessProbe=asks("nothing")))
        await asyncio.sleep(15)
        assert heard.of("Unhealthy") == ['Readiness probe failed: command: "nothing": nothing: not found']


async def test_ports_by_number_and_by_name() -> None:
    async with answering() as (node, backend, heard):
        ports = [{"name": "web", "containerPort": 8080}]
        await node.create(probed("named", readinessProbe={"tcpSocket": {"port": "web"}}, ports=ports))
        await node.create(probed("other", readinessProbe={"tcpSocket": {"port": "none"}}, ports=ports))
        await asyncio.sleep(15)
        assert condition(await node.get("named"), "Ready") == "False"
        assert any("nobody listens on port 8080" in text for text in heard.of("Unhealthy"))
        assert any("no port named 'none'" in text for text in heard.of("Unhealthy"))
        backend.listening.add(8080)
        await asyncio.sleep(10)
        assert condition(await node.get("named"), "Ready") == "True"


async def test_hundreds_of_pods_are_asked_a_few_at_a_time() -> None:
    async with answering() as (node, backend, _):
        backend.codes["ready"], backend.slow["ready"] = 0, 0.1
        await asyncio.gather(*(node.create(probed(f"p{i}", readinessProbe=asks("ready"))) for i in range(300)))
        await asyncio.sleep(10)
        assert [condition(await node.get(f"p{i}"), "Ready") for i in range(300)] == ["True"] * 300
        assert backend.most_asked <= 16
        await asyncio.gather(*(node.delete(f"p{i}", grace=0) for i in range(300)))
        await asyncio.sleep(60)
        assert node.left == 0


async def test_pods_that_hang_do_not_keep_others_from_being_asked() -> None:
    async with answering() as (node, backend, _):
        backend.codes |= {"hang": 0, "ready": 0}
        backend.slow["hang"] = 1e6
        for i in range(100):
            await node.create(probed(f"bad{i}", readinessProbe=asks("hang")))
        await node.create(probed("good", readinessProbe=asks("ready", periodSeconds=10, failureThreshold=1)))
        await asyncio.sleep(60)
        assert condition(await node.get("good"), "Ready") == "True"


async def test_hooks_that_never_end_keep_nobody_waiting() -> None:
    async with answering() as (node, backend, _):
        backend.codes |= {"hang": 0, "ready": 0}
        backend.slow["hang"] = 1e6
        for i in range(40):
            await node.create(probed(f"bad{i}", lifecycle={"postStart": asks("hang")}))
        for i in range(40):
            await node.create(probed(f"slow{i}", readinessProbe=asks("hang", timeoutSeconds=100000)))
        await node.create(probed("good", readinessProbe=asks("ready")))
        await asyncio.sleep(20)
        assert condition(await node.get("good"), "Ready") == "True"
        for name in await node.names():
            await node.delete(name, grace=0)
        await asyncio.sleep(10)
        assert (node.left, backend.now_asked) == (0, 0)


async def test_a_paused_pod_is_not_asked_and_stays_as_it_was() -> None:
    async with answering() as (node, backend, _):
        backend.codes |= {"alive": 0, "ready": 0}
        await node.create(probed(livenessProbe=asks("alive", periodSeconds=1), readinessProbe=asks("ready")))
        await asyncio.sleep(5)
        (seen,) = backend.list_pods()
        await backend.pause(seen.uid)
        backend.codes |= {"alive": 1, "ready": 1}
        await asyncio.sleep(60)
        pod = await node.get()
        assert (condition(pod, "Ready"), main_status(pod)["restartCount"]) == ("True", 0)
        backend.codes |= {"alive": 0, "ready": 0}
        await backend.resume(seen.uid)
        before = backend.asked["alive"]
        await asyncio.sleep(10)
        assert backend.asked["alive"] > before
        assert condition(await node.get(), "Ready") == "True"


async def test_a_backend_that_cannot_be_asked_decides_itself() -> None:
    async with a_node() as node:
        await node.create(probed(readinessProbe=asks("ready"), livenessProbe={"tcpSocket": {"port": 1}}))
        await asyncio.sleep(3)
        assert condition(await node.get(), "Ready") == "True"
        assert node.api.count("patch_status", "pods") == 1, "as without probes"


@pytest.mark.parametrize("moment", [0.05, 0.15, 1.0, 11.0])
async def test_a_restart_of_the_kubelet_keeps_what_was_known(moment: float) -> None:
    made: list[AnsweringBackend] = []

    def make(clock: LoopClock) -> AnsweringBackend:
        made.append(AnsweringBackend(clock))
        made[-1].codes["ready"] = 0
        return made[-1]

    async with a_node(make_backend=make) as node:
        await asyncio.sleep(1)
        await node.create(probed(readinessProbe=asks("ready")))
        await asyncio.sleep(moment)
        before = await node.get()
        node.api.clear()
        await node.restart()
        await asyncio.sleep(5)
        after = await node.get()
        assert condition(after, "Ready") == "True"
        if condition(before, "Ready") == "True":
            assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], "no flicker"


async def test_a_hook_after_the_start_holds_readiness_back() -> None:
    async with answering() as (node, backend, _):
        backend.codes["greet"], backend.slow["greet"] = 0, 5.0
        await node.create(probed(lifecycle={"postStart": asks("greet")}))
        await asyncio.sleep(3)
        assert condition(await node.get(), "Ready") == "False"
        await asyncio.sleep(5)
        assert condition(await node.get(), "Ready") == "True"
        assert backend.asked["greet"] == 1


async def test_a_hook_that_fails_restarts_the_container() -> None:
    async with answering() as (node, backend, heard):
        backend.codes["greet"] = lambda before: int(before == 0)
        await node.create(probed(lifecycle={"postStart": asks("greet")}))
        await asyncio.sleep(5)
        pod = await node.get()
        assert (main_status(pod)["restartCount"], condition(pod, "Ready")) == (1, "True")
        assert heard.of("FailedPostStartHook") == ["PostStartHook failed: it says [31mno"]


async def test_a_hook_before_the_end_runs_within_the_grace() -> None:
    async with answering() as (node, backend, _):
        backend.codes["bye"], backend.slow["bye"] = 0, 4.0
        await node.create(probed(lifecycle={"preStop": asks("bye")}, terminationGracePeriodSeconds=10))
        await asyncio.sleep(3)
        await node.delete()
        await asyncio.sleep(3)
        assert (backend.asked["bye"], backend.stopped) == (1, [])
        await asyncio.sleep(3)
        assert await node.names() == []
        assert backend.stopped[0] == pytest.approx(6.0, abs=0.1)
        assert node.left == 0


async def test_a_hook_that_takes_all_of_the_grace_is_cut() -> None:
    async with answering() as (node, backend, heard):
        backend.codes["bye"], backend.slow["bye"] = 0, 100.0
        await node.create(probed(lifecycle={"preStop": asks("bye")}, terminationGracePeriodSeconds=5))
        await asyncio.sleep(3)
        await node.delete()
        await asyncio.sleep(8)
        assert await node.names() == []
        assert (backend.cancelled, set(backend.stopped)) == (1, {2.0}), "and the process still had a moment"
        assert len(heard.of("FailedPreStopHook")) == 1


async def test_a_force_delete_does_not_wait_for_a_hook() -> None:
    async with answering() as (node, backend, _):
        backend.codes["bye"], backend.slow["bye"] = 0, 100.0
        await node.create(probed(lifecycle={"preStop": asks("bye")}, terminationGracePeriodSeconds=50))
        await asyncio.sleep(3)
        await node.delete()
        await asyncio.sleep(1)
        await node.delete(grace=0)
        await asyncio.sleep(2)
        assert await node.names() == []
        assert (backend.cancelled, node.left) == (1, 0)


async def test_a_grace_that_shrinks_cuts_a_hook() -> None:
    async with answering() as (node, backend, _):
        backend.codes["bye"], backend.slow["bye"] = 0, 100.0
        await node.create(probed(lifecycle={"preStop": asks("bye")}, terminationGracePeriodSeconds=50))
        await asyncio.sleep(3)
        await node.delete()
        await asyncio.sleep(1)
        await node.delete(grace=3)
        await asyncio.sleep(8)
        assert await node.names() == []
        assert node.left == 0


async def test_a_sleep_before_the_end() -> None:
    async with answering() as (node, backend, _):
        await node.create(probed(lifecycle={"preStop": {"sleep": {"seconds": 7}}}))
        await asyncio.sleep(3)
        await node.delete()
        await asyncio.sleep(6)
        assert backend.stopped == []
        await asyncio.sleep(2)
        assert await node.names() == []


async def test_a_failed_probe_ends_a_container_after_its_hook() -> None:
    async with answering() as (node, backend, _):
        backend.codes |= {"alive": lambda before: int(before == 1), "bye": 0}
        backend.slow["bye"] = 3.0
        await node.create(
            probed(livenessProbe=asks("alive", periodSeconds=2, failureThreshold=1), lifecycle={"preStop": asks("bye")})
        )
        await asyncio.sleep(4)
        assert backend.ended == []
        await asyncio.sleep(4)
        assert backend.ended[0] == ("main", pytest.approx(27.0, abs=0.2))
        assert main_status(await node.get())["restartCount"] == 1


@pytest.mark.parametrize("moment", [0.05, 0.15, 0.3, 2.0, 2.5, 5.0, 12.0])
async def test_a_delete_at_every_moment_leaves_nothing(moment: float) -> None:
    async with answering(options=FakeOptions(start=(0.1, 0.1), ready=(1, 1), stop=(0.1, 0.1))) as (node, backend, _):
        backend.codes |= {"alive": lambda before: int(before > 3), "bye": 0, "greet": 0}
        backend.slow |= {"bye": 1.0, "greet": 0.2, "alive": 0.5}
        body = probed(
            livenessProbe=asks("alive", periodSeconds=1, failureThreshold=1),
            readinessProbe={"tcpSocket": {"port": 5}},
            lifecycle={"preStop": asks("bye"), "postStart": asks("greet")},
        )
        await node.create(body)
        await asyncio.sleep(moment)
        await node.delete()
        await asyncio.sleep(40)
        assert await node.names() == []
        assert node.left == 0
