"""The kinds of Kubernetes itself that controllers use: leases, events, pods, config."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from conformance.bodies import core, lease, pod
from sandpool.kube.api import Api
from sandpool.kube.errors import ApiError, Conflict, Invalid
from sandpool.model.kinds import CONFIG_MAPS, EVENTS, LEASES, PODS, SECRETS, SERVICES
from sandpool.model.patches import Patch, PatchType, json_patch, merge_patch


async def test_lease_patches_of_every_type(api: Api, ns: str) -> None:
    made = await api.create(LEASES, lease("l", holderIdentity="one", leaseDurationSeconds=15), ns)
    for patch in (
        merge_patch({"spec": {"holderIdentity": "two"}}),
        Patch(PatchType.STRATEGIC, {"spec": {"holderIdentity": "three"}}),
        json_patch([{"op": "replace", "path": "/spec/holderIdentity", "value": "four"}]),
    ):
        moved = await api.patch(LEASES, "l", patch, ns)
        assert moved.metadata.revision > made.metadata.revision
        assert moved.spec.lease_duration_seconds == 15
    assert moved.spec.holder_identity == "four"


async def test_lease_keeps_microseconds(api: Api, ns: str) -> None:
    moment = "2030-01-01T00:00:00.123456Z"
    made = await api.create(LEASES, lease("l", renewTime=moment, acquireTime=moment), ns)
    expected = datetime(2030, 1, 1, 0, 0, 0, 123456, UTC)
    assert (made.spec.renew_time, made.spec.acquire_time) == (expected, expected)


async def test_lease_is_taken_once(api: Api, ns: str) -> None:
    """How a leader is elected: a patch that carries the revision that was read."""
    seen = await api.create(LEASES, lease("l"), ns)

    async def take(who: str) -> str:
        body = {"metadata": {"resourceVersion": seen.metadata.resource_version}, "spec": {"holderIdentity": who}}
        try:
            return (await api.patch(LEASES, "l", merge_patch(body), ns)).spec.holder_identity or ""
        except Conflict:
            return ""

    won = [who for who in await asyncio.gather(*(take(f"c{i}") for i in range(10))) if who]
    assert len(won) == 1
    assert (await api.get(LEASES, "l", ns)).spec.holder_identity == won[0]


async def test_lease_rules(api: Api, ns: str) -> None:
    with pytest.raises(Invalid) as caught:
        await api.create(LEASES, lease("l", leaseDurationSeconds=0), ns)
    assert [(c.reason, c.field) for c in caught.value.causes] == [("FieldValueInvalid", "spec.leaseDurationSeconds")]


async def test_events(api: Api, ns: str) -> None:
    about = {"kind": "Sandbox", "apiVersion": "agents.x-k8s.io/v1beta1", "name": "s", "namespace": ns, "uid": "u"}
    body = {"metadata": {"generateName": "s."}, "involvedObject": about, "reason": "Started", "message": "it runs"}
    made = await api.create(EVENTS, {**body, "type": "Normal", "count": 1, "source": {"component": "test"}}, ns)
    assert (made.reason, made.involved_object.name, made.count) == ("Started", "s", 1)
    again = await api.patch(EVENTS, made.metadata.name, merge_patch({"count": 2}), ns)
    assert again.count == 2
    found = await api.list(EVENTS, ns, fields="involvedObject.name=s,reason=Started")
    assert [event.metadata.name for event in found.items] == [made.metadata.name]
    with pytest.raises(ApiError) as caught:
        await api.create(EVENTS, {**body, "involvedObject": {**about, "namespace": "elsewhere"}}, ns)
    assert (caught.value.code, caught.value.word) == (422, "Invalid")


async def test_pod_life(api: Api, ns: str) -> None:
    made = await api.create(PODS, pod("p"), ns)
    assert (made.status.phase, made.spec.restart_policy) == ("Pending", "Always")
    assert made.spec.termination_grace_period_seconds == 30
    body = {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}
    running = await api.patch_status(PODS, "p", merge_patch({"status": body}), ns)
    assert (running.status.phase, running.ips) == ("Running", ("10.0.0.1",))
    labelled = await api.patch(PODS, "p", merge_patch({"metadata": {"labels": {"a": "b"}}}), ns)
    assert labelled.status == running.status
    with pytest.raises(Invalid) as caught:
        await api.patch(PODS, "p", merge_patch({"spec": {"restartPolicy": "Never"}}), ns)
    assert {(c.reason, c.field) for c in caught.value.causes} == {("FieldValueForbidden", "spec")}


async def test_pod_rules(api: Api, ns: str) -> None:
    for body, field in (
        (pod("p", containers=[]), "spec.containers"),
        (pod("p", containers=[{"name": "a"}]), "spec.containers[0].image"),
        (pod("p", containers=[{"image": "a"}]), "spec.containers[0].name"),
    ):
        with pytest.raises(Invalid) as caught:
            await api.create(PODS, body, ns)
        assert ("FieldValueRequired", field) in {(c.reason, c.field) for c in caught.value.causes}
    assert (await api.list(PODS, ns)).items == ()


async def test_secrets_and_config(api: Api, ns: str) -> None:
    made = await api.create(SECRETS, core("Secret", "s", stringData={"a": "b"}), ns)
    assert (made.data, made.type) == ({"a": "Yg=="}, "Opaque")
    fixed = await api.create(CONFIG_MAPS, core("ConfigMap", "c", data={"k": "v"}, immutable=True), ns)
    with pytest.raises(Invalid) as caught:
        await api.patch(CONFIG_MAPS, "c", merge_patch({"data": {"k": "w"}}), ns)
    assert [(c.reason, c.field) for c in caught.value.causes] == [("FieldValueForbidden", "data")]
    assert await api.get(CONFIG_MAPS, "c", ns) == fixed


async def test_headless_service(api: Api, ns: str) -> None:
    made = await api.create(SERVICES, core("Service", "s", spec={"clusterIP": "None", "selector": {"a": "b"}}), ns)
    assert made.spec.headless
    ports = {"spec": {"ports": [{"name": "http", "port": 80}]}}
    patched = await api.patch(SERVICES, "s", merge_patch(ports), ns)
    assert [(port.name, port.port, port.protocol) for port in patched.spec.ports] == [("http", 80, "TCP")]
