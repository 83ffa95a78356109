"""How containers end, fail to start, and are ended: exit codes, signals, grace, images and commands that do not exist."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from conformance.backends.subject import Subject, a_workload, ended, gone, ready
from sandpool.node.backend import (
    ADDRESS,
    BackendError,
    Capabilities,
    Command,
    ContainerSpec,
    ContainerStatus,
    Exit,
    PodSecurityContext,
    PodStatus,
    Resources,
    SecurityContext,
    Started,
    Waiting,
    Workload,
    WorkloadSpec,
)
from support.node.streams import TestStreams

STUBBORN = "trap '' TERM; echo up; while true; do sleep 0.05; done"


def changed(work: Workload, **fields: Any) -> Workload:
    container = msgspec.structs.replace(work.spec.containers[0], **fields)
    return replace(work, spec=msgspec.structs.replace(work.spec, containers=(container,)))


async def ended_as(subject: Subject, work: Workload) -> Exit:
    await subject.backend.start_pod(work)
    await subject.until(work.uid, ended)
    state = subject.container(work.uid).state
    assert isinstance(state, Exit)
    return state


def waits_for(reason: str) -> Any:
    def waits(seen: PodStatus | None) -> bool:
        first = seen.containers[0].state if seen is not None else None
        return isinstance(first, Waiting) and first.reason == reason

    return waits


async def said(subject: Subject, work: Workload) -> None:
    """Until it has written something."""
    async for _ in subject.backend.logs(work.uid, "main", follow=True):
        return


@pytest.mark.parametrize("code", [0, 255])
async def test_an_exit_code_is_told(real: Subject, code: int) -> None:
    end = await ended_as(real, a_workload(command=f"exit {code}"))
    assert (end.code, end.signal, end.reason) == (code, 0, "")
    assert real.container(a_workload().uid).id.startswith(f"{real.name}://")


async def test_a_signal_is_told(real: Subject) -> None:
    end = await ended_as(real, a_workload(command="kill -USR1 $$$$; sleep 100"))
    assert (end.code, end.signal) == (128 + signal.SIGUSR1, signal.SIGUSR1)


@pytest.mark.parametrize("argv", [("no-such-command",), ("/usr", "x")])
async def test_a_command_that_does_not_exist_is_an_end_that_says_so(real: Subject, argv: tuple[str, ...]) -> None:
    work = changed(a_workload(), command=argv)
    end = await ended_as(real, work)
    assert (end.code, end.reason) == (128, "StartError")
    assert argv[0] in end.message
    await real.backend.restart_container(work.uid, "main")
    await real.until(work.uid, lambda seen: seen is not None and seen.containers[0].restarts == 1)
    assert isinstance(real.container(work.uid).state, Exit)
    await real.backend.stop_pod(work.uid, 0)
    await real.until(work.uid, gone)


async def test_an_image_that_does_not_exist_is_waited_for(real: Subject) -> None:
    work = changed(a_workload(), image="nowhere")
    await real.backend.start_pod(work)
    await real.until(work.uid, waits_for("ImagePullBackOff"))
    reasons = [seen.containers[0].state.reason for _, seen in real.told if seen and _waits(seen)]  # type: ignore[union-attr]
    assert reasons.index("ErrImagePull") < reasons.index("ImagePullBackOff")
    state = real.container(work.uid).state
    assert isinstance(state, Waiting)
    assert "nowhere" in state.message
    await real.backend.stop_pod(work.uid, 5)
    await real.until(work.uid, gone)


def _waits(seen: PodStatus) -> bool:
    return isinstance(seen.containers[0].state, Waiting)


async def test_one_container_that_cannot_start_does_not_keep_back_another(real: Subject) -> None:
    good = a_workload().spec.containers[0]
    bad = msgspec.structs.replace(good, name="bad", image="nowhere")
    work = replace(a_workload(), spec=WorkloadSpec(containers=(bad, good)))
    await real.backend.start_pod(work)
    await real.until(work.uid, lambda seen: seen is not None and isinstance(seen.containers[1].state, Started))


async def test_one_that_ignores_the_polite_signal_is_ended_by_force(real: Subject) -> None:
    work = a_workload(command=STUBBORN)
    await real.started(work)
    await said(real, work)
    await real.backend.stop_pod(work.uid, 0.3)
    await real.until(work.uid, gone)
    ends = [seen.containers[0].state for _, seen in real.told if seen is not None]
    assert isinstance(ends[-1], Exit)
    assert (ends[-1].code, ends[-1].signal) == (137, signal.SIGKILL)


async def test_one_that_obeys_ends_as_it_likes(real: Subject) -> None:
    work = a_workload(command="trap 'exit 9' TERM; echo up; while true; do sleep 0.05; done")
    await real.started(work)
    await said(real, work)
    await real.backend.stop_pod(work.uid, 30)
    await real.until(work.uid, gone)
    end = [seen.containers[0].state for _, seen in real.told if seen is not None][-1]
    assert isinstance(end, Exit)
    assert end.code == 9


async def test_a_later_stop_may_shorten_the_grace(real: Subject) -> None:
    work = a_workload(command=STUBBORN)
    await real.started(work)
    await said(real, work)
    await real.backend.stop_pod(work.uid, 1000)
    await real.backend.stop_pod(work.uid, 0)
    async with asyncio.timeout(20):
        await real.until(work.uid, gone)


async def test_one_container_can_be_ended_and_the_pod_stays(real: Subject) -> None:
    for number, (command, code) in enumerate(((STUBBORN, 137), ("echo up; exec sleep 1000", 143)), 1):
        work = a_workload(number, command)
        before = await real.started(work)
        await said(real, work)
        await real.backend.stop_container(work.uid, "main", 1000 if code == 143 else 0.2)
        await real.until(work.uid, ended)
        end = real.container(work.uid).state
        assert isinstance(end, Exit)
        assert end.code == code
        seen = real.backend.pod_status(work.uid)
        assert seen is not None
        assert (seen.address, seen.stopping) == (before.address, False)
        await real.backend.stop_container(work.uid, "main", 0)  # nothing happens to one that has ended
        await real.backend.restart_container(work.uid, "main")
        await real.until(work.uid, ready)


async def test_init_containers_run_one_after_the_other_and_may_be_tried_again(real: Subject) -> None:
    steps = ("exit 0", "exit 3", "exit 0")
    init = tuple(
        ContainerSpec(name=f"init-{number}", image="host", command=("sh", "-c", step))
        for number, step in enumerate(steps)
    )
    work = replace(a_workload(), spec=WorkloadSpec(init_containers=init, containers=a_workload().spec.containers))
    await real.backend.start_pod(work)

    def failed(times: int) -> Any:
        return lambda seen: isinstance(seen.init[1].state, Exit) and seen.init[1].restarts == times

    seen = await real.until(work.uid, failed(0))
    assert seen is not None
    assert isinstance(seen.init[2].state, Waiting)
    assert isinstance(seen.containers[0].state, Waiting)
    await real.backend.restart_container(work.uid, "init-1")
    seen = await real.until(work.uid, failed(1))
    assert seen is not None
    assert isinstance(seen.containers[0].state, Waiting)
    await real.backend.stop_pod(work.uid, 0)
    await real.until(work.uid, gone)


async def test_a_sidecar_runs_beside_the_others(real: Subject) -> None:
    sidecar = ContainerSpec(name="side", image="host", command=("sleep", "1000"), restart_policy="Always")
    work = replace(a_workload(), spec=WorkloadSpec(init_containers=(sidecar,), containers=a_workload().spec.containers))
    seen = await real.started(work)
    assert isinstance(seen.init[0].state, Started)


async def test_a_pod_that_ran_before_carries_on(real: Subject) -> None:
    work = a_workload()
    end = Exit(137, datetime(2026, 1, 1, tzinfo=UTC))
    was = PodStatus(work.uid, work.key, "127.64.3.4", (), (ContainerStatus("main", Waiting(), "", 3, end),))
    seen = await real.started(replace(work, was=was))
    assert (seen.address, seen.containers[0].restarts, seen.containers[0].last) == ("127.64.3.4", 3, end)


async def test_one_that_had_ended_is_not_run_again_by_itself(real: Subject) -> None:
    work = a_workload()
    done = ContainerStatus("main", Exit(0, datetime(2026, 1, 1, tzinfo=UTC)), "x://1", 1)
    await real.backend.start_pod(replace(work, was=PodStatus(work.uid, work.key, "", (), (done,))))
    await real.until(work.uid, lambda seen: seen is not None and bool(seen.address))
    assert real.container(work.uid) == done
    await real.backend.restart_container(work.uid, "main")
    seen = await real.until(work.uid, ready)
    assert seen is not None
    assert (seen.containers[0].restarts, seen.containers[0].last) == (2, done.state)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"security_context": SecurityContext(privileged=True)}, "privileged"),
        ({"security_context": SecurityContext(run_as_non_root=True)}, "runAsNonRoot"),
        ({"security_context": SecurityContext(capabilities=Capabilities(add=("SYS_ADMIN",)))}, "SYS_ADMIN"),
        ({"resources": Resources(limits={"nvidia.com/gpu": "1"})}, "nvidia.com/gpu"),
    ],
)
async def test_what_cannot_be_given_is_refused_and_not_left_out(
    real: Subject, fields: dict[str, Any], words: str
) -> None:
    work = changed(a_workload(), **fields)
    await real.backend.start_pod(work)
    await real.until(work.uid, waits_for("CreateContainerConfigError"))
    state = real.container(work.uid).state
    assert isinstance(state, Waiting)
    assert words in state.message


@pytest.mark.parametrize("field", ["host_network", "host_pid", "host_ipc"])
async def test_the_machines_own_namespaces_are_refused(real: Subject, field: str) -> None:
    work = replace(a_workload(), spec=msgspec.structs.replace(a_workload().spec, **{field: True}))
    with pytest.raises(BackendError):
        await real.backend.start_pod(work)
    assert real.backend.pod_status(work.uid) is None


async def test_a_pod_may_know_its_own_address(real: Subject) -> None:
    work = replace(a_workload(command="echo $POD_IP $(ADDRESS)"), env={"main": {"POD_IP": f"<{ADDRESS}>"}})
    work = changed(work, args=("x", "$(POD_IP)"), command=("sh", "-c", "echo $POD_IP $1"))
    await real.backend.start_pod(work)
    seen = await real.until(work.uid, ended)
    assert seen is not None
    text = b"".join([text async for text in real.backend.logs(work.uid, "main")])
    assert text.decode() == f"<{seen.address}> <{seen.address}>\n"


async def test_a_pod_that_uses_too_much_memory_is_killed_and_says_why(real: Subject) -> None:
    if "memory" not in (await real.backend.probe()).enforced:
        pytest.skip("memory is not enforced here")
    hungry = "exec python3 -c 'x = []\nwhile True: x.append(bytearray(1 << 20))'"
    work = changed(a_workload(command=hungry), resources=Resources(limits={"memory": "64Mi"}))
    end = await ended_as(real, work)
    assert (end.code, end.reason) == (137, "OOMKilled")


async def test_a_paused_pod_does_nothing(real: Subject) -> None:
    work = a_workload(command="i=0; while true; do i=$((i+1)); echo $i; sleep 0.005; done")
    await real.started(work)
    await said(real, work)
    await real.backend.pause(work.uid)
    size = -1
    async with asyncio.timeout(10):  # what was on its way arrives
        while size != (size := await _size(real, work)):
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.1)
    assert await _size(real, work) == size
    await real.backend.resume(work.uid)
    async with asyncio.timeout(10):
        while await _size(real, work) == size:
            await asyncio.sleep(0.01)


async def _size(subject: Subject, work: Workload) -> int:
    return sum([len(text) async for text in subject.backend.logs(work.uid, "main")])


async def test_stats_tell_what_is_used(real: Subject) -> None:
    work = a_workload(command="i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo up; exec sleep 1000")
    await real.started(work)
    await said(real, work)
    stats = await real.backend.stats(work.uid)
    assert stats.processes >= 1
    assert stats.memory_bytes > 100_000
    assert stats.cpu_seconds > 0


async def test_a_user_may_be_chosen_by_number(real: Subject) -> None:
    work = replace(
        a_workload(command="id -u; id -g; exec sleep 1000"),
        spec=msgspec.structs.replace(
            a_workload(command="id -u; id -g; exec sleep 1000").spec,
            security_context=PodSecurityContext(run_as_user=0, run_as_group=0),
        ),
    )
    await real.started(work)
    streams = TestStreams()
    assert (await real.backend.exec(work.uid, "main", Command(("id", "-u")), streams)).code == 0
    assert streams.text == b"0\n"
