"""Who is let in, by what a sandbox says of itself."""

from __future__ import annotations

import pytest

from sandpool.model.metadata import Key
from sandpool.model.sandbox import Sandbox
from sandpool.router.answers import Refusal
from sandpool.router.directory import find, unidentified
from sandpool.router.ports import Target
from support.clocks.manual_clock import START
from support.network.gate_parts import POOL, READY, a_sandbox

KEY = Key("default", "box")
NOT_READY = {"type": "Ready", "status": "False", "reason": "DependenciesNotReady", "message": "the pod is starting"}
EXPIRED = {"type": "Ready", "status": "False", "reason": "SandboxExpired", "message": ""}
FINISHED = {"type": "Finished", "status": "True", "reason": "PodFailed", "message": ""}
LEAVING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
OLD_POOL = {**POOL, "apiVersion": "extensions.agents.x-k8s.io/v1alpha1"}


@pytest.mark.parametrize(
    ("sandbox", "status", "word", "says"),
    [
        (None, 404, "NOT_FOUND", "kubectl get sandboxclaims"),
        (a_sandbox(owner=POOL), 404, "NOT_CLAIMED", "sandpool claim python"),
        (a_sandbox(owner=OLD_POOL), 404, "NOT_CLAIMED", "the pool python"),
        (a_sandbox(owner=POOL, metadata=LEAVING), 404, "NOT_CLAIMED", "not claimed"),
        (a_sandbox(metadata=LEAVING), 410, "GONE", "is being deleted"),
        (a_sandbox(shutdownTime="2025-12-31T23:59:59Z"), 410, "GONE", "spec.shutdownTime"),
        (a_sandbox(shutdownTime="2026-01-01T00:00:00Z"), 410, "GONE", "expired"),
        (a_sandbox(conditions=(EXPIRED,)), 410, "GONE", "expired"),
        (a_sandbox(conditions=(READY, FINISHED)), 410, "GONE", "PodFailed"),
        (a_sandbox(operatingMode="Suspended"), 409, "SUSPENDED", "sandpool resume sandbox/box -n default"),
        (a_sandbox(conditions=(NOT_READY,)), 503, "NOT_READY", "DependenciesNotReady: the pod is starting"),
        (a_sandbox(conditions=()), 503, "NOT_READY", "it has no status yet"),
        (a_sandbox(ips=()), 503, "NOT_READY", "no address"),
    ],
)
def test_nobody_is_let_in(sandbox: Sandbox | None, status: int, word: str, says: str) -> None:
    found = find(sandbox, KEY, "", START)
    assert isinstance(found, Refusal)
    assert (found.status, found.word) == (status, word)
    assert says in found.message
    assert "box" in found.message
    answer = found.answer()
    assert answer.body == {"detail": found.message, "code": word, "message": found.message}
    assert ((b"retry-after", b"1") in answer.headers) == (status == 503)


@pytest.mark.parametrize("owner", [None, {**POOL, "kind": "SandboxClaim"}, {**POOL, "apiVersion": "example.com/v1"}])
def test_one_that_is_somebodys_is_reached(owner: dict[str, str] | None) -> None:
    sandbox = a_sandbox(owner=owner, shutdownTime="2026-01-01T00:00:01Z", ips=("10.0.0.7", "fd00::7"))
    assert find(sandbox, KEY, "u-1", START) == Target("default", "box", sandbox.metadata.uid, "box", "10.0.0.7")


def test_the_pod_may_have_another_name() -> None:
    annotations = {"agents.x-k8s.io/pod-name": "python-x7"}
    found = find(a_sandbox(metadata={"annotations": annotations}), KEY, "", START)
    assert isinstance(found, Target)
    assert found.pod == "python-x7"


def test_another_object_of_the_same_name_is_not_meant() -> None:
    found = find(a_sandbox(uid="u-2"), KEY, "u-1", START)
    assert isinstance(found, Refusal)
    assert (found.status, found.word) == (410, "GONE")
    assert "u-1" in found.message


def test_who_does_not_own_a_member_is_not_told_whether_its_uid_is_right() -> None:
    assert find(a_sandbox(owner=POOL), KEY, "u-1", START) == find(a_sandbox(owner=POOL), KEY, "u-9", START)


def test_a_word_can_be_given_for_one_that_rests() -> None:
    for resting in (a_sandbox(operatingMode="Suspended"), a_sandbox(conditions=(NOT_READY,), ips=())):
        assert unidentified(resting, KEY, "", START) is None
    assert unidentified(a_sandbox(owner=POOL), KEY, "", START) is not None
