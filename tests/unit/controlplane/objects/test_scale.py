"""The scale subresource of a warm pool."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.kube.errors import BadRequest, Conflict, Invalid, NotFound, UnsupportedMedia
from sandpool.model import kinds
from sandpool.model.patches import Patch, PatchType
from support.api.local_objects import Bench, claim, read


def pool(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"sandboxTemplateRef": {"name": "t"}, "replicas": 2, **spec}}


def scale(replicas: Any, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "p", "namespace": "default", **metadata},
        "spec": {"replicas": replicas},
    }


async def test_reading(b: Bench) -> None:
    made = await b.create(kinds.POOLS, pool())
    await b.patch(kinds.POOLS, "p", {"status": {"replicas": 1, "readyReplicas": 1, "selector": "a=b"}}, "status")
    found = read(b.objects.get(kinds.POOLS, "default", "p", "scale"))
    assert found == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": made["metadata"]["uid"],
            "resourceVersion": str(b.store.revision),
            "creationTimestamp": made["metadata"]["creationTimestamp"],
        },
        "spec": {"replicas": 2},
        "status": {"replicas": 1, "selector": "a=b"},
    }


async def test_writing_changes_the_pool(b: Bench) -> None:
    await b.create(kinds.POOLS, pool())
    put = await b.put(kinds.POOLS, "p", scale(5), "scale")
    assert (put["kind"], put["spec"]) == ("Scale", {"replicas": 5})
    found = b.get(kinds.POOLS, "p")
    assert found["spec"]["replicas"] == 5
    assert found["spec"]["sandboxTemplateRef"] == {"name": "t"}
    assert found["metadata"]["generation"] == 2
    patched = await b.patch(kinds.POOLS, "p", {"spec": {"replicas": 0}}, "scale")
    assert patched["spec"] == {"replicas": 0}
    assert b.get(kinds.POOLS, "p")["spec"]["replicas"] == 0


async def test_conflicts_are_the_pools(b: Bench) -> None:
    made = await b.create(kinds.POOLS, pool())
    await b.patch(kinds.POOLS, "p", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(
        Conflict, match=r'on sandboxwarmpools\.extensions\.agents\.x-k8s\.io "p": the object has been modified'
    ):
        await b.put(kinds.POOLS, "p", scale(5, resourceVersion=made["metadata"]["resourceVersion"]), "scale")
    with pytest.raises(Conflict, match=r"UID in precondition: other"):
        await b.put(kinds.POOLS, "p", scale(5, uid="other"), "scale")
    with pytest.raises(Invalid) as caught:
        await b.patch(kinds.POOLS, "p", [{"op": "test", "path": "/spec/replicas", "value": 9}], "scale")
    assert caught.value.causes == ()
    assert b.get(kinds.POOLS, "p")["spec"]["replicas"] == 2


async def test_what_cannot_be(b: Bench) -> None:
    await b.create(kinds.POOLS, pool())
    with pytest.raises(Invalid) as caught:
        await b.patch(kinds.POOLS, "p", {"spec": {"replicas": -4}}, "scale")
    assert "spec.replicas" in [cause.field for cause in caught.value.causes]
    with pytest.raises(Invalid, match=r"patch: Invalid value"):
        await b.patch(kinds.POOLS, "p", {"spec": {"replicas": "a"}}, "scale")
    with pytest.raises(BadRequest):
        await b.put(kinds.POOLS, "p", scale("a"), "scale")
    with pytest.raises(BadRequest, match=r"does not match the name on the URL"):
        await b.put(kinds.POOLS, "p", scale(3, name="q"), "scale")
    with pytest.raises(UnsupportedMedia):
        await b.patch(kinds.POOLS, "p", Patch(PatchType.STRATEGIC, {}), "scale")
    await b.create(kinds.CLAIMS, claim())
    with pytest.raises(NotFound, match=r"the server could not find the requested resource"):
        await b.patch(kinds.CLAIMS, "x", {"spec": {"replicas": 1}}, "scale")
