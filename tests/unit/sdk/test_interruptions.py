"""What became of a sandbox, by what its pod says."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.model import times
from sandpool.sdk.answers import refusal
from sandpool.sdk.errors import (
    CommandFailed,
    CommandLost,
    OutOfMemory,
    ProcessLost,
    ProcessNotFound,
    SandboxNotFound,
    SandboxRestarted,
)
from sandpool.sdk.interruptions import (
    Interruption,
    RestartHistory,
    explained_by,
    interruption,
    mode_changed,
    observed,
    restarts_of,
)
from sandpool.sdk.outcome import checked, command_error
from sandpool.sdk.values import Captured, Exit, Result

AT = "2026-11-16T12:00:10Z"
STARTED = times.parse(AT).timestamp()


def container(state: dict[str, Any], last: dict[str, Any] | None = None, restarts: int = 0) -> dict[str, Any]:
    return {
        "name": "main",
        "state": state,
        "lastState": {"terminated": last} if last else {},
        "restartCount": restarts,
    }


def pod(*containers: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "box"}, "status": {"phase": "Running", "containerStatuses": containers, **status}}


def running(at: str) -> dict[str, Any]:
    return {"running": {"startedAt": at}}


OOM = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-11-16T12:00:12Z"}


def test_a_pod_that_goes_on_explains_nothing() -> None:
    assert interruption(pod(container(running("2026-11-16T11:00:00Z"))), STARTED) is None
    assert interruption(pod(container(running("2026-11-16T11:00:00Z"), OOM, 1)), STARTED) is None  # long before
    assert interruption(pod(container(running("2026-11-16T13:00:00Z"), OOM, 1))) is None  # nobody knows since when


@pytest.mark.parametrize(
    ("found", "reason", "words"),
    [
        (None, "PodDeleted", "its pod was deleted"),
        ({"metadata": {"deletionTimestamp": AT}, "status": {}}, "PodDeleted", "is being deleted"),
        (pod(phase="Failed", reason="Evicted", message="disk full"), "Evicted", "disk full"),
        (pod(phase="Failed"), "PodFailed", "its pod has ended"),
        (pod(phase="Succeeded"), "PodSucceeded", "its pod has ended"),
        (pod(container({"terminated": OOM})), "OOMKilled", "container main has ended with exit code 137"),
        (pod(container({"waiting": {"reason": "CrashLoopBackOff"}}, OOM, 2)), "OOMKilled", "ended with exit code 137"),
        (pod(container({"waiting": {"reason": "ContainerCreating"}})), "PodDeleted", "another one is starting"),
        (pod(container(running("2026-11-16T12:00:13Z"), OOM, 1)), "OOMKilled", "was restarted"),
        (pod(container(running(AT), OOM, 1)), "OOMKilled", "was restarted"),  # in the same second
        (pod(container(running("2026-11-16T12:00:13Z"))), "PodDeleted", "another one has replaced it"),
    ],
)
def test_what_ended_all_that_ran(found: dict[str, Any] | None, reason: str, words: str) -> None:
    why = interruption(found, STARTED + 0.4)
    assert why is not None
    assert why.reason == reason
    assert words in why.message


def test_restarts_and_why() -> None:
    assert restarts_of(pod(container(running(AT)))) == (0, "")
    older = {"reason": "Error", "exitCode": 1, "finishedAt": "2026-11-16T11:00:00Z"}
    assert restarts_of(pod(container(running(AT), OOM, 2), container(running(AT), older, 1))) == (3, "OOMKilled")
    assert restarts_of({}) == (0, "")


def named(uid: str, created: str = AT, restarts: int = 0, **metadata: Any) -> dict[str, Any]:
    found = pod(container(running(AT), OOM if restarts else None, restarts))
    return {**found, "metadata": {"uid": uid, "creationTimestamp": created, **metadata}}


def test_a_pod_in_the_place_of_another_is_a_restart() -> None:
    first = observed(RestartHistory(), named("a", restarts=2))
    assert (first.restarts, first.reason) == (2, "OOMKilled")
    other = observed(first, named("b"))
    assert (other.restarts, other.reason) == (3, "PodDeleted")
    assert observed(other, named("b")) == other
    later = observed(other, named("b", restarts=1))
    assert (later.restarts, later.reason) == (4, "OOMKilled")


def test_a_pod_that_is_younger_than_what_ran_in_the_sandbox_is_another() -> None:
    assert observed(RestartHistory(), named("b"), STARTED - 1).restarts == 1
    assert observed(RestartHistory(), named("b"), STARTED + 0.9).restarts == 0, "in the same second"
    assert observed(RestartHistory(), named("b")).restarts == 0, "nobody knows"
    assert observed(RestartHistory(), {}, STARTED).restarts == 0


@pytest.mark.parametrize("before", [RestartHistory(), observed(RestartHistory(), named("a"))])
def test_one_deletion_that_several_calls_hear_of_is_one_restart(before: RestartHistory) -> None:
    gone = observed(observed(before, None, replaced=True), None, replaced=True)
    assert (gone.restarts, gone.reason) == (1, "PodDeleted")
    assert observed(gone, named("b"), replaced=True).restarts == 1
    ending = observed(before, named("a", deletionTimestamp=AT), replaced=True)
    assert ending.restarts == 0, "it is still there"
    assert observed(ending, named("b"), replaced=True).restarts == 1
    taken = observed(before, named("b"), replaced=True)
    assert observed(taken, named("b"), replaced=True).restarts == 1
    assert observed(before, None) == before


def test_who_suspends_and_resumes_expects_another_pod() -> None:
    before = observed(RestartHistory(), named("a", restarts=1))
    after = observed(mode_changed(before), named("b"), STARTED - 1)
    assert (after.restarts, after.reason) == (1, "OOMKilled")
    assert observed(after, named("c")).restarts == 2


def test_an_error_says_what_it_was_once_that_is_known() -> None:
    why = Interruption("OOMKilled", "its container main ended with exit code 137 and was restarted")
    lost = explained_by(CommandLost("sandbox a/b: the connection was lost while 'x' ran; start it with `start`"), why)
    assert type(lost) is SandboxRestarted
    assert lost.reason == "OOMKilled"
    assert str(lost) == f"sandbox a/b: the connection was lost while 'x' ran: {why.message} (OOMKilled)"
    gone = explained_by(ProcessNotFound("no process 7; `processes()` lists those that are known"), why)
    assert isinstance(gone, ProcessLost)
    assert isinstance(gone, SandboxRestarted)
    assert isinstance(gone, ProcessNotFound)
    other = SandboxNotFound("x")
    assert explained_by(other, why) is other


def test_the_end_for_want_of_memory_has_a_class() -> None:
    end = Exit.of({"code": 137, "signal": 9, "outOfMemory": True})
    result = Result("x", end.code, Captured(b"out"), signal=end.signal, out_of_memory=end.out_of_memory)
    with pytest.raises(OutOfMemory, match="memory was used up") as caught:
        checked(result, "sandbox a/b")
    assert isinstance(caught.value, CommandFailed)
    assert (caught.value.exit_code, caught.value.stdout) == (137, "out")
    assert not Exit.of({"code": 137, "signal": 9}).out_of_memory


def test_a_sandbox_that_hangs_up_instead_of_answering_lost_the_command() -> None:
    said = b'{"detail": "d", "code": "UNAVAILABLE", "message": "the sandbox hung up without an answer"}'
    error = refusal(502, said, "sandbox a/b")
    assert isinstance(command_error(error), CommandLost)  # type: ignore[arg-type]
