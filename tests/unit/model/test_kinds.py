"""The kinds: what they are called, what they decode to, and that nothing is lost on the way."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from sandpool.model import codec, core, kinds, labels
from sandpool.model.metadata import Metadata, PartialObject, RawObject
from sandpool.model.pod import Pod
from sandpool.model.pool import SandboxWarmPool, UpdateStrategyType
from sandpool.model.sandbox import Sandbox

SANDBOX = {
    "apiVersion": "agents.x-k8s.io/v1beta1",
    "kind": "Sandbox",
    "metadata": {
        "name": "s",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "12",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"a": "b"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "X", "name": "other", "uid": "1"},
            {
                "apiVersion": "extensions.agents.x-k8s.io/v1alpha1",
                "kind": "SandboxClaim",
                "name": "c",
                "uid": "2",
                "controller": True,
                "blockOwnerDeletion": True,
            },
        ],
        "finalizers": ["f"],
    },
    "spec": {
        "podTemplate": {
            "spec": {"containers": [{"name": "c", "image": "i", "unheardOf": {"kept": [1, 2.5, None]}}]},
            "metadata": {"labels": {"x": "y"}},
        },
        "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
        "service": False,
        "shutdownTime": "2026-02-01T00:00:00Z",
        "operatingMode": "Suspended",
    },
    "status": {
        "serviceFQDN": "s.n.svc",
        "podIPs": ["10.0.0.1", "::1"],
        "nodeName": "node",
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "DependenciesReady",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:01Z",
            }
        ],
    },
}


def test_every_kind_is_named_once() -> None:
    assert len({(kind.group, kind.plural) for kind in kinds.ALL}) == len(kinds.ALL) == 17
    assert len({kind.kind for kind in kinds.ALL}) == len(kinds.ALL)
    assert set(kinds.OURS) <= set(kinds.ALL)
    words = [word for kind in kinds.ALL for word in {kind.plural, kind.singular, *kind.short_names}]
    assert len(words) == len(set(words))


@pytest.mark.parametrize("kind", kinds.ALL, ids=lambda kind: kind.plural)
def test_a_type_knows_what_it_is(kind: Any) -> None:
    assert (kind.type.api_version, kind.type.kind) == (kind.api_version, kind.kind)


def test_a_sandbox_survives_decoding_and_encoding() -> None:
    found = codec.decode(kinds.SANDBOXES, msgspec.json.encode(SANDBOX))
    assert isinstance(found, Sandbox)
    assert found.metadata.creation_timestamp == datetime(2026, 1, 1, tzinfo=UTC)
    assert found.metadata.controller is not None
    assert found.metadata.controller.group == "extensions.agents.x-k8s.io"
    assert found.spec.service is False
    assert found.spec.suspended
    assert found.status.pod_ips == ("10.0.0.1", "::1")
    assert codec.to_json(found) == SANDBOX
    assert msgspec.json.decode(codec.encode(found)) == SANDBOX


def test_unknown_fields_are_dropped_and_unknown_values_kept() -> None:
    body = {
        "metadata": {"name": "p", "managedFields": [{"manager": "m"}]},
        "spec": {"sandboxTemplateRef": {"name": "t"}, "updateStrategy": {"type": "FromTheFuture"}, "new": 1},
        "status": {"replicas": 2, "newer": {}},
    }
    pool = codec.convert(kinds.POOLS, body)
    assert pool.spec.replicas == 1
    assert pool.spec.strategy is UpdateStrategyType.ON_REPLENISH
    assert pool.spec.update_strategy is not None
    assert pool.spec.update_strategy.type == "FromTheFuture"
    assert codec.to_json(pool) == {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxWarmPool",
        "metadata": {"name": "p"},
        "spec": {"sandboxTemplateRef": {"name": "t"}, "updateStrategy": {"type": "FromTheFuture"}},
        "status": {"replicas": 2},
    }


def test_a_raw_object_keeps_everything() -> None:
    raw = kinds.raw(kinds.SANDBOXES)
    assert raw == kinds.SANDBOXES
    found = codec.decode(raw, msgspec.json.encode({**SANDBOX, "extra": {"a": None}}))
    assert isinstance(found, RawObject)
    assert found.metadata.uid == "u"
    assert found.body["extra"] == {"a": None}
    assert msgspec.json.decode(codec.encode(found)) == found.body
    assert codec.convert(raw, found.body) == found


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"metadata":1}', b'{"metadata":{"labels":{"a":1}}}'])
@pytest.mark.parametrize("kind", [kinds.PODS, kinds.raw(kinds.PODS)], ids=["typed", "raw"])
def test_what_is_no_object_is_refused(kind: Any, body: bytes) -> None:
    with pytest.raises(codec.DecodeError):
        codec.decode(kind, body)


def test_a_list_gives_each_item_its_own_bytes() -> None:
    body = {
        "metadata": {"resourceVersion": "7", "continue": "more", "remainingItemCount": 3},
        "items": [SANDBOX, SANDBOX],
    }
    page = codec.decode_list(kinds.SANDBOXES, msgspec.json.encode(body))
    assert (page.metadata.resource_version, page.metadata.continue_, page.metadata.remaining_item_count) == (
        "7",
        "more",
        3,
    )
    assert [item.metadata.name for item in page.items] == ["s", "s"]
    assert codec.decode_list(kinds.PODS, b'{"metadata":{},"items":null}').items == ()


def test_an_empty_object_still_says_what_it_is() -> None:
    assert codec.encode(core.ConfigMap()) == b'{"apiVersion":"v1","kind":"ConfigMap"}'
    partial = PartialObject(metadata=Metadata(name="a"), api_version="v1", kind="Pod")
    assert codec.to_json(partial) == {"metadata": {"name": "a"}, "apiVersion": "v1", "kind": "Pod"}


def test_micro_times_always_have_six_decimals() -> None:
    whole = datetime(2026, 1, 1, tzinfo=UTC)
    lease = core.Lease(spec=core.LeaseSpec(renew_time=whole, acquire_time=None))
    assert codec.to_json(lease)["spec"] == {"renewTime": "2026-01-01T00:00:00.000000Z"}
    event = core.Event(event_time=whole, first_timestamp=whole, series=core.EventSeries(last_observed_time=whole))
    body = msgspec.json.decode(codec.encode(event))
    assert body["eventTime"] == body["series"]["lastObservedTime"] == "2026-01-01T00:00:00.000000Z"
    assert body["firstTimestamp"] == "2026-01-01T00:00:00Z"
    assert codec.decode(kinds.EVENTS, codec.encode(event)) == event
    assert codec.to_json(core.Event()) == {"apiVersion": "v1", "kind": "Event"}


def test_a_pod_as_a_server_writes_it() -> None:
    body = {
        "metadata": {"name": "p", "creationTimestamp": None},
        "spec": {"nodeName": "n", "containers": [{"name": "c"}], "terminationGracePeriodSeconds": 30},
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}],
        },
    }
    pod = codec.convert(kinds.PODS, body)
    assert isinstance(pod, Pod)
    assert pod.ready
    assert pod.ips == ("10.0.0.1",)
    assert not Pod().ready


def test_decoded_objects_are_immutable_and_out_of_the_collectors_sight() -> None:
    import gc

    pool = codec.convert(kinds.POOLS, {"spec": {"sandboxTemplateRef": {"name": "t"}}})
    with pytest.raises(AttributeError):
        pool.spec = pool.spec  # type: ignore[misc]
    assert not gc.is_tracked(pool)
    assert isinstance(pool, SandboxWarmPool)


@pytest.mark.parametrize(
    ("key", "label", "annotation"),
    [
        (labels.CLAIM_UID, True, True),
        ("extensions.agents.x-k8s.io/x", True, True),
        (labels.TRACE_CONTEXT, False, True),
        ("api.agents.x-k8s.io/x", False, False),
        ("agents.x-k8s.io", False, False),
        (labels.SAFE_TO_EVICT, False, False),
    ],
)
def test_reserved_keys(key: str, label: bool, annotation: bool) -> None:
    assert labels.reserved_label(key) is label
    assert labels.reserved_annotation(key) is annotation


def test_selectors_in_status_and_creators() -> None:
    assert labels.sandbox_selector("my-sandbox") == "agents.x-k8s.io/sandbox-name-hash=374de8f5"
    assert labels.pool_selector("test-pool") == "agents.x-k8s.io/warm-pool-sandbox=59733166"
    assert labels.created_by("python-client") == "python-client"
    assert labels.created_by("anything else") == "unknown"
