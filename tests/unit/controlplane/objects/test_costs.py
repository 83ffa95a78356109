"""What a write costs until it is handed to the log, in calls of Python functions: of the writes that every claim makes."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest

from sandpool.controlplane.api import LocalApi
from sandpool.model import kinds
from sandpool.model.patches import Patch, json_patch, merge_patch
from support.api.counted_calls import calls_of
from support.api.local_objects import Bench, claim, pod, sandbox

LABELS = {"pool": "a1", "template": "b2", "launch": "warm", "created-by": "controller"}
POOL = {"apiVersion": "e/v1", "kind": "Pool", "name": "pool", "uid": "u-1", "controller": True}
CLAIM = {"apiVersion": "e/v1", "kind": "Claim", "name": "claim", "uid": "u-2", "controller": True}


def calls(work: Coroutine[Any, Any, Any]) -> int:
    """Of a write that has to wait for the disk then. Whoever stops waiting does not undo it."""
    try:
        return calls_of(partial(work.send, None))
    finally:
        work.close()


def condition(name: str, message: str = "") -> dict[str, Any]:
    stamp = {"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}
    return {"type": name, "status": "True", "reason": "AllGood", "message": message, **stamp}


def status(uid: str, message: str) -> Patch:
    value = {"conditions": [condition("Ready", message), condition("Suspended")], "podIPs": ["10.0.0.1"]}
    return json_patch(
        [{"op": "test", "path": "/metadata/uid", "value": uid}, {"op": "add", "path": "/status", "value": value}]
    )


def transfer(uid: str) -> Patch:
    tests = [("/metadata/uid", uid), ("/metadata/ownerReferences/0/uid", "u-1")]
    operations: list[dict[str, Any]] = [{"op": "test", "path": path, "value": value} for path, value in tests]
    operations.append({"op": "replace", "path": "/metadata/ownerReferences/0", "value": CLAIM})
    for name in LABELS:
        operations.append({"op": "add", "path": f"/metadata/labels/{name}", "value": ""})
        operations.append({"op": "remove", "path": f"/metadata/labels/{name}"})
    return json_patch(operations)


@pytest.fixture
def api(b: Bench) -> LocalApi:
    return LocalApi(b.objects)


async def test_creating_one_more_of_a_kind(api: LocalApi) -> None:
    for resource, body, most in ((kinds.CLAIMS, claim, 60), (kinds.SANDBOXES, sandbox, 62), (kinds.PODS, pod, 70)):
        await api.create(resource, body("first", labels=LABELS), "default")  # type: ignore[misc]
        assert calls(api.create(resource, body("second", labels=LABELS), "default")) <= most, resource.plural


async def test_a_transfer(api: LocalApi) -> None:
    for name in ("first", "second"):
        made = await api.create(kinds.SANDBOXES, sandbox(name, labels=LABELS, ownerReferences=[POOL]), "default")
        if name == "first":
            await api.patch(kinds.SANDBOXES, name, transfer(made.metadata.uid), "default")
        else:
            assert calls(api.patch(kinds.SANDBOXES, name, transfer(made.metadata.uid), "default")) <= 78


async def test_a_status(api: LocalApi) -> None:
    for name in ("first", "second"):
        made = await api.create(kinds.SANDBOXES, sandbox(name), "default")
        if name == "first":
            await api.patch_status(kinds.SANDBOXES, name, status(made.metadata.uid, "ready"), "default")
        else:
            assert calls(api.patch_status(kinds.SANDBOXES, name, status(made.metadata.uid, "ready"), "default")) <= 52


async def test_annotations(api: LocalApi) -> None:
    patch = merge_patch({"metadata": {"annotations": {"first-observed": "then", "first-ready": "now"}}})
    for name in ("first", "second"):
        await api.create(kinds.CLAIMS, claim(name), "default")
        if name == "first":
            await api.patch(kinds.CLAIMS, name, patch, "default")
        else:
            assert calls(api.patch(kinds.CLAIMS, name, patch, "default")) <= 56


async def test_whoever_stops_waiting_does_not_undo_it(api: LocalApi, b: Bench) -> None:
    assert calls(api.create(kinds.CLAIMS, claim("first"), "default")) > 0
    await b.store.durable(b.store.deciding("extensions.agents.x-k8s.io/sandboxclaims/default/first"))
    assert (await api.get(kinds.CLAIMS, "first", "default")).metadata.name == "first"
