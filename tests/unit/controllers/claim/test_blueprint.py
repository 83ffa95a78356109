from __future__ import annotations

from typing import Any

import msgspec
import pytest

from conformance.bodies import pod_spec
from sandpool.controllers.claim.blueprint import cold_sandbox
from sandpool.loop.errors import Terminal
from sandpool.model import labels
from sandpool.model.blueprint import hardened
from sandpool.model.codec import to_json
from sandpool.model.names import name_hash
from sandpool.model.reasons import Reason
from sandpool.model.sandbox import Sandbox
from support.simulated.claim_parts import a_claim, a_template

VOLUME = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}


def pod_of(sandbox: Sandbox) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(sandbox.spec.pod_template.spec)
    return found


def test_the_whole_sandbox() -> None:
    claim = a_claim(meta={"labels": {labels.CREATED_BY: "python-client"}, "annotations": {labels.TRACE_CONTEXT: "{}"}})
    template = a_template(meta={"labels": {"team": "x"}, "annotations": {"n": "1"}}, service=True)
    marks = {
        labels.CLAIM_UID: "claim-uid",
        labels.TEMPLATE_REF_HASH: name_hash("t"),
        labels.CREATED_BY: "python-client",
    }
    assert to_json(cold_sandbox(claim, template)) == {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {
            "name": "c",
            "namespace": "default",
            "labels": {**marks, labels.LAUNCH_TYPE: "cold"},
            "annotations": {labels.TEMPLATE_REF: "t", labels.POD_NAME: "c", labels.TRACE_CONTEXT: "{}"},
            "ownerReferences": [
                {
                    "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
                    "kind": "SandboxClaim",
                    "name": "c",
                    "uid": "claim-uid",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "podTemplate": {
                "metadata": {"labels": {"team": "x", **marks}, "annotations": {"n": "1"}},
                "spec": {
                    **hardened(pod_spec()),
                    "automountServiceAccountToken": False,
                    "dnsPolicy": "None",
                    "dnsConfig": {"nameservers": ["8.8.8.8", "1.1.1.1"]},
                },
            },
            "service": True,
        },
    }


def test_without_a_creator_or_a_trace_there_is_no_such_key() -> None:
    made = cold_sandbox(a_claim(), a_template())
    assert labels.CREATED_BY not in made.metadata.labels
    assert labels.TRACE_CONTEXT not in made.metadata.annotations


def test_env_and_volumes_and_metadata_arrive() -> None:
    claim = a_claim(
        env=[{"name": "A", "value": "1"}],
        volumeClaimTemplates=[VOLUME],
        additionalPodMetadata={"labels": {"sandbox.users.io/x": "y"}, "annotations": {"note": "z"}},
    )
    template = a_template(envVarsInjectionPolicy="Allowed", volumeClaimTemplatesPolicy="Allowed")
    made = cold_sandbox(claim, template)
    assert pod_of(made)["containers"][0]["env"] == [{"name": "A", "value": "1"}]
    assert [volume.metadata.name for volume in made.spec.volume_claim_templates or ()] == ["data"]
    metadata = made.spec.pod_template.metadata
    assert metadata is not None
    assert metadata.labels["sandbox.users.io/x"] == "y"
    assert metadata.annotations == {"note": "z"}
    assert made.metadata.labels[labels.LAUNCH_TYPE] == "cold"


def test_volumes_of_the_template_arrive() -> None:
    made = cold_sandbox(a_claim(), a_template(volumeClaimTemplates=[VOLUME]))
    assert to_json(made)["spec"]["volumeClaimTemplates"] == [VOLUME]
    assert "volumeClaimTemplates" not in to_json(cold_sandbox(a_claim(), a_template()))["spec"]


@pytest.mark.parametrize("given", [True, False])
def test_an_explicit_token_setting_is_kept(given: bool) -> None:
    made = cold_sandbox(a_claim(), a_template(pod={"automountServiceAccountToken": given}))
    assert pod_of(made)["automountServiceAccountToken"] is given


@pytest.mark.parametrize(
    "open_network", [{"networkPolicy": {"egress": [{}]}}, {"networkPolicyManagement": "Unmanaged"}]
)
def test_dns_is_left_alone_unless_the_built_in_policy_blocks_it(open_network: dict[str, Any]) -> None:
    assert "dnsPolicy" not in pod_of(cold_sandbox(a_claim(), a_template(**open_network)))


def test_an_explicit_dns_policy_is_kept() -> None:
    assert pod_of(cold_sandbox(a_claim(), a_template(pod={"dnsPolicy": "Default"})))["dnsPolicy"] == "Default"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"env": [{"name": "A", "value": "1"}]}, Reason.ENV_VARS_INJECTION_REJECTED),
        ({"volumeClaimTemplates": [VOLUME]}, Reason.VOLUME_CLAIM_TEMPLATES_ERROR),
        ({"additionalPodMetadata": {"labels": {"x": "y"}}}, Reason.INVALID_METADATA),
    ],
)
def test_refusals(asked: dict[str, Any], reason: Reason) -> None:
    with pytest.raises(Terminal) as caught:
        cold_sandbox(a_claim(**asked), a_template())
    assert caught.value.reason == reason


def test_system_labels_cannot_be_overridden_even_where_their_domain_is_allowed() -> None:
    claim = a_claim(additionalPodMetadata={"labels": {labels.CLAIM_UID: "somebody else"}})
    with pytest.raises(Terminal, match="claim-uid"):
        cold_sandbox(claim, a_template(), domains=("agents.x-k8s.io",))


def test_what_no_warm_sandbox_can_satisfy() -> None:
    assert a_claim(env=[{"name": "A", "value": "1"}]).spec.customised
    assert a_claim(volumeClaimTemplates=[VOLUME]).spec.customised
    plain = a_claim(
        additionalPodMetadata={"labels": {"sandbox.users.io/x": "y"}}, lifecycle={"shutdownPolicy": "Delete"}
    )
    assert not plain.spec.customised
