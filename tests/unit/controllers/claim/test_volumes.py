from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sandpool.controllers.claim.blueprint import Volumes, with_volumes
from sandpool.loop.errors import Terminal
from sandpool.model.reasons import Reason
from sandpool.model.sandbox import EmbeddedMetadata, VolumeClaimTemplate


def volume(name: str, size: str = "1Gi") -> VolumeClaimTemplate:
    spec = {"resources": {"requests": {"storage": size}}}
    return VolumeClaimTemplate(metadata=EmbeddedMetadata(name=name), spec=msgspec.Raw(msgspec.json.encode(spec)))


def shown(volumes: Volumes | None) -> list[tuple[str, Any]]:
    return [
        (one.metadata.name, msgspec.json.decode(one.spec)["resources"]["requests"]["storage"]) for one in volumes or ()
    ]


OURS = (volume("home"), volume("data"))


def refusal(ours: Volumes | None, wanted: Volumes, policy: str) -> str:
    with pytest.raises(Terminal) as caught:
        with_volumes(ours, wanted, policy, "python")
    assert caught.value.reason == Reason.VOLUME_CLAIM_TEMPLATES_ERROR
    return caught.value.message


def test_overrides_replaces_in_place_and_appends() -> None:
    made = with_volumes(OURS, (volume("more"), volume("home", "9Gi")), "Overrides", "python")
    assert shown(made) == [("home", "9Gi"), ("data", "1Gi"), ("more", "1Gi")]


def test_allowed_appends() -> None:
    assert shown(with_volumes(OURS, (volume("more"),), "Allowed", "python"))[-1] == ("more", "1Gi")
    assert shown(with_volumes(None, (volume("more"),), "Allowed", "python")) == [("more", "1Gi")]


@pytest.mark.parametrize("policy", ["Disallowed", "", "Allowed"])
def test_nothing_wanted_the_policy_is_not_asked(policy: str) -> None:
    assert with_volumes(OURS, (), policy, "python") is OURS
    assert with_volumes(None, (), policy, "python") is None, "absent stays absent: the field cannot change later"


@pytest.mark.parametrize("policy", ["Disallowed", "", "Whatever"])
def test_disallowed(policy: str) -> None:
    message = refusal(OURS, (volume("more"),), policy)
    assert "volumeClaimTemplatesPolicy" in message
    assert "SandboxTemplate python" in message


def test_a_clash_names_the_volume() -> None:
    assert 'SandboxTemplate python has "home" already' in refusal(OURS, (volume("home"),), "Allowed")


def test_empty_name_has_its_index() -> None:
    assert refusal(OURS, (volume("a"), volume("")), "Allowed").startswith("spec.volumeClaimTemplates[1].metadata.name")


def test_duplicate_name_in_the_claim() -> None:
    assert '"a" is used twice' in refusal(OURS, (volume("a"), volume("a")), "Overrides")


@pytest.mark.parametrize("ours", [(volume(""),), (volume("a"), volume("a"))])
def test_the_templates_own_list_is_checked_even_alone(ours: Volumes) -> None:
    assert refusal(ours, (), "Disallowed").startswith("SandboxTemplate python: spec.volumeClaimTemplates[")
