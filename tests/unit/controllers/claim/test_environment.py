"""Variables of a claim: each case is one pod spec, one claim and what comes of them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from sandpool.controllers.claim.blueprint import with_environment
from sandpool.loop.errors import Terminal
from sandpool.model.claim import EnvVar
from sandpool.model.reasons import Reason

SPEC: dict[str, Any] = {
    "initContainers": [{"name": "setup", "image": "i", "env": [{"name": "S", "value": "0"}]}],
    "containers": [
        {"name": "main", "image": "i", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        {"name": "side", "image": "i"},
    ],
}


def var(name: str, value: str = "x", container: str = "") -> EnvVar:
    return EnvVar(name=name, value=value, container_name=container)


def env_of(spec: dict[str, Any], container: str) -> list[tuple[str, str]]:
    every = [*spec["initContainers"], *spec["containers"]]
    return [(e["name"], e["value"]) for c in every if c["name"] == container for e in c.get("env", ())]


def with_env_from(container: str) -> dict[str, Any]:
    spec = deepcopy(SPEC)
    for one in [*spec["initContainers"], *spec["containers"]]:
        if one["name"] == container:
            one["envFrom"] = [{"configMapRef": {"name": "m"}}]
    return spec


@pytest.mark.parametrize("policy", ["Allowed", "Overrides"])
def test_new_variables_follow_the_templates_own(policy: str) -> None:
    made = with_environment(SPEC, [var("Z"), var("C")], policy, "python")
    assert env_of(made, "main") == [("A", "1"), ("B", "2"), ("Z", "x"), ("C", "x")]
    assert made["containers"][1] is SPEC["containers"][1]
    assert made["initContainers"] is SPEC["initContainers"], "what is not touched is shared"
    assert env_of(SPEC, "main") == [("A", "1"), ("B", "2")], "and the template's own is not changed"


def refusal(spec: dict[str, Any], wanted: list[EnvVar], policy: str) -> str:
    with pytest.raises(Terminal) as caught:
        with_environment(spec, wanted, policy, "python")
    assert caught.value.reason == Reason.ENV_VARS_INJECTION_REJECTED
    assert "SandboxTemplate python" in caught.value.message, "whoever may change it must know which"
    return caught.value.message


def test_allowed_does_not_replace() -> None:
    message = refusal(SPEC, [var("A")], "Allowed")
    assert 'spec.env["A"]' in message
    assert '"main"' in message


def test_the_same_name_twice_is_a_clash_too() -> None:
    assert 'spec.env["N"]' in refusal(SPEC, [var("N"), var("N")], "Allowed")
    assert env_of(with_environment(SPEC, [var("N", "1"), var("N", "2")], "Overrides", "python"), "main")[-1] == (
        "N",
        "2",
    )


@pytest.mark.parametrize("policy", ["Disallowed", "", "Whatever"])
@pytest.mark.parametrize("name", ["A", "NEW"])
def test_disallowed(policy: str, name: str) -> None:
    assert f'spec.env["{name}"]' in refusal(SPEC, [var(name)], policy)


@pytest.mark.parametrize("container", ["main", "setup"])
def test_allowed_cannot_see_into_env_from(container: str) -> None:
    message = refusal(with_env_from(container), [var("N", container=container)], "Allowed")
    assert f'container "{container}" has envFrom' in message
    made = with_environment(with_env_from(container), [var("N", container=container)], "Overrides", "python")
    assert env_of(made, container)[-1] == ("N", "x")


def test_env_from_elsewhere_does_not_matter() -> None:
    made = with_environment(with_env_from("side"), [var("N")], "Allowed", "python")
    assert env_of(made, "main")[-1] == ("N", "x")


@pytest.mark.parametrize("policy", ["Allowed", "Disallowed"])
def test_nothing_wanted_nothing_checked(policy: str) -> None:
    spec = with_env_from("main")
    assert with_environment(spec, [], policy, "python") is spec


def test_overrides_replaces_in_place_and_with_a_plain_value() -> None:
    spec = deepcopy(SPEC)
    spec["containers"][0]["env"][0] = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    made = with_environment(spec, [var("A", "new")], "Overrides", "python")
    assert made["containers"][0]["env"] == [{"name": "A", "value": "new"}, {"name": "B", "value": "2"}]


def test_one_container_is_meant() -> None:
    made = with_environment(SPEC, [var("N", container="side")], "Allowed", "python")
    assert env_of(made, "side") == [("N", "x")]
    assert env_of(made, "main") == [("A", "1"), ("B", "2")]


def test_an_init_container_is_meant() -> None:
    made = with_environment(SPEC, [var("N", container="setup")], "Allowed", "python")
    assert env_of(made, "setup") == [("S", "0"), ("N", "x")]


def test_unknown_container() -> None:
    message = refusal(SPEC, [var("N", container="ghost")], "Allowed")
    assert '"ghost"' in message
    assert 'spec.env["N"]' in message
    assert "setup, main, side" in message


def test_named_targets_come_before_the_default_one() -> None:
    made = with_environment(SPEC, [var("D"), var("E", container="main")], "Allowed", "python")
    assert [name for name, _ in env_of(made, "main")] == ["A", "B", "E", "D"]
