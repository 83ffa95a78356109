"""Why another daemon answers than the one that was meant, by what the API server says."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.kube.errors import Forbidden, NotFound
from sandpool.model import times
from sandpool.sdk._async import failure_diagnosis
from sandpool.sdk._async.failure_diagnosis import FailureDiagnosis
from sandpool.sdk.claims import info_of
from sandpool.sdk.errors import CommandLost, SandboxRestarted
from sandpool.sdk.interruptions import UNKNOWN_RUN, LostRun

LONG_AGO, AT, LATER = "2026-11-16T11:00:00Z", "2026-11-16T12:00:10Z", "2026-11-16T12:00:30Z"
MEANT = times.parse(AT).timestamp() + 0.3
CLAIM: dict[str, Any] = {
    "metadata": {"namespace": "default", "name": "mine", "uid": "c"},
    "spec": {"warmPoolRef": {"name": "python"}},
    "status": {"sandbox": {"name": "box"}, "conditions": [{"type": "Ready", "status": "True"}]},
}
NOT_DONE = SandboxRestarted("sandbox default/box was started again, and nothing of this one was done; go on")


def pod(started: str, uid: str = "p") -> dict[str, Any]:
    main = {"name": "main", "state": {"running": {"startedAt": started}}, "restartCount": 0}
    metadata = {"name": "box", "uid": uid, "creationTimestamp": started}
    return {"metadata": metadata, "status": {"phase": "Running", "containerStatuses": [main]}}


class _Cluster:
    def __init__(self, pod: dict[str, Any] | Exception) -> None:
        self.pod = pod

    async def get(self, path: str) -> dict[str, Any]:
        if "/sandboxclaims/" in path:
            return CLAIM
        if "/sandboxes/" in path:
            return {"metadata": {"name": "box", "uid": "s"}}
        if isinstance(self.pod, Exception):
            raise self.pod
        return self.pod


class _Plane:
    """A handle's way, that means a daemon which began at MEANT."""

    sandbox, uid, since = "box", "s", MEANT

    def __init__(self, same: bool | None = None) -> None:
        self.same = same
        self.asked: list[str] = []

    async def answered_by_the_same(self, path: str, timeout: float) -> bool | None:
        self.asked.append(path)
        return self.same

    def forget(self) -> None: ...


def diagnosis(pod: dict[str, Any] | Exception, plane: _Plane | None = None) -> FailureDiagnosis:
    cluster: Any = _Cluster(pod)
    way: Any = plane or _Plane()
    return FailureDiagnosis(cluster, way, CLAIM)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_diagnosis, "STATUS_DELAY", 0.0)


@pytest.mark.parametrize(
    ("found", "reason", "restarts"),
    [(pod(LATER), "PodDeleted", 1), (pod(LONG_AGO), "DaemonEnded", 0)],
    ids=["another pod", "the same pod"],
)
async def test_why_another_daemon_answers(found: dict[str, Any], reason: str, restarts: int) -> None:
    asked = diagnosis(found)
    error = await asked.explain(NOT_DONE, LostRun("", MEANT))
    assert type(error) is SandboxRestarted
    assert error.reason == reason
    assert str(error).startswith("sandbox default/box was started again, and nothing of this one was done: its ")
    assert (await asked.with_restarts(info_of(CLAIM))).restarts == restarts


@pytest.mark.parametrize("refused", [Forbidden("no"), NotFound("none")])
async def test_who_may_not_look_hears_that_it_was_started_again(refused: Exception) -> None:
    asked = diagnosis(refused)
    error = await asked.explain(NOT_DONE, LostRun("", MEANT))
    assert isinstance(error, SandboxRestarted)
    assert error.reason == ("" if isinstance(refused, Forbidden) else "PodDeleted")
    assert (await asked.with_restarts(info_of(CLAIM))).restarts is None


@pytest.mark.parametrize(
    ("found", "same", "reason"),
    [
        (pod(LATER), None, "PodDeleted"),
        (pod(LONG_AGO), False, "DaemonEnded"),
        (pod(LONG_AGO), True, None),
        (pod(LONG_AGO), None, None),
    ],
)
async def test_a_command_of_which_nothing_was_heard(
    found: dict[str, Any], same: bool | None, reason: str | None
) -> None:
    """The router says that the sandbox hung up: what is known of the daemon that was meant decides."""
    plane = _Plane(same)
    lost = CommandLost("sandbox default/box: it hung up; whether it ran is not known")
    error = await diagnosis(found, plane).explain(lost, UNKNOWN_RUN)
    assert (error.reason if isinstance(error, SandboxRestarted) else None) == reason
    assert set(plane.asked) <= {"/box/v1/health"}
