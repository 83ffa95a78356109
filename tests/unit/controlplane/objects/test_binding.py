"""What a Binding does to a pod, in the words of a server."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sandpool.controlplane.objects.placing import bound
from sandpool.kube.errors import ApiError, BadRequest, Conflict, NotFound
from sandpool.model.binding import binding_body, binding_resource
from sandpool.model.kinds import PODS
from sandpool.model.metadata import Uid
from support.simulated.kubelet_node import a_node, a_pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NODE = {"kind": "Node", "name": "local"}


def stored(**changes: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "uid": "u1", "generation": 1, **changes.pop("metadata", {})},
        "spec": {"containers": [], **changes.pop("spec", {})},
        "status": {"phase": "Pending", **changes.pop("status", {})},
    }


def test_a_binding_sets_the_node_and_says_scheduled() -> None:
    before = stored(
        status={"conditions": [{"type": "PodScheduled", "status": "False"}, {"type": "X", "status": "True"}]}
    )
    after = bound(before, {"metadata": {"uid": "u1"}, "target": NODE}, NOW)
    assert after["spec"]["nodeName"] == "local"
    assert [(c["type"], c["status"]) for c in after["status"]["conditions"]] == [
        ("X", "True"),
        ("PodScheduled", "True"),
    ]
    assert "nodeName" not in before["spec"], "documents are never changed in place"
    assert after["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("pod", "binding", "error", "says"),
    [
        (stored(), {"target": {"kind": "Node"}}, BadRequest, "target.name"),
        (stored(), {"target": {"kind": "Rack", "name": "r"}}, BadRequest, "the target must be a Node"),
        (stored(), {"target": {"kind": "Node", "name": 5}}, BadRequest, "target.name"),
        (stored(), {"target": {"kind": "Node", "name": "no/node"}}, BadRequest, "target.name"),
        (stored(), {"target": "local"}, BadRequest, "target must be an object"),
        (stored(), {"metadata": ["p"], "target": NODE}, BadRequest, "metadata must be an object"),
        (stored(), {"metadata": {"name": "q"}, "target": NODE}, BadRequest, "name in URL does not match"),
        (stored(), {"metadata": {"uid": 5}, "target": NODE}, Conflict, "5"),
        (stored(), {"metadata": {"uid": "u2"}, "target": NODE}, Conflict, "u2"),
        (stored(spec={"nodeName": "other"}), {"target": NODE}, Conflict, "already assigned to node .other."),
        (stored(metadata={"deletionTimestamp": "x"}), {"target": NODE}, Conflict, "being deleted"),
    ],
)
def test_refusals(pod: dict[str, Any], binding: dict[str, Any], error: type[ApiError], says: str) -> None:
    with pytest.raises(error, match=says):
        bound(pod, binding, NOW)


@pytest.mark.looptime
async def test_in_process_a_pod_is_bound_once_and_by_uid() -> None:
    async with a_node(started=False) as node:
        await node.create(a_pod())
        pod = await node.api.get(PODS, "p", "default")
        resource = binding_resource("p")
        other = {**binding_body(pod.metadata, "local"), "metadata": {"name": "p", "uid": Uid("other")}}
        with pytest.raises(Conflict):
            await node.api.create(resource, other, "default")
        await node.api.create(resource, binding_body(pod.metadata, "local"), "default")
        after = await node.api.get(PODS, "p", "default")
        assert after.spec.node_name == "local"
        assert after.metadata.revision > pod.metadata.revision
        with pytest.raises(Conflict, match="already assigned"):
            await node.api.create(resource, binding_body(pod.metadata, "local"), "default")
        with pytest.raises(NotFound):
            await node.api.create(binding_resource("q"), {**other, "metadata": {"name": "q"}}, "default")


def test_the_path_is_that_of_the_subresource() -> None:
    assert binding_resource("p").path("default") == "/api/v1/namespaces/default/pods/p/binding"
