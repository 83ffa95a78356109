"""An object told to people, and what to do about it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sandpool.cli.commands import COMMANDS
from sandpool.cli.objects.advice import ADVICE, OF_PODS, advice
from sandpool.cli.objects.describe import described
from sandpool.model.kinds import CLAIMS, SECRETS
from sandpool.model.reasons import Reason

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
CONTENT = {
    Reason.DEPENDENCIES_READY,
    Reason.NOT_SUSPENDED,
    Reason.POD_TERMINATED,
    Reason.POD_SCHEDULED,
    Reason.AS_EXPECTED,
    Reason.MEMBERS_READY,
    Reason.UP_TO_DATE,
}


def claim(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
        "kind": "SandboxClaim",
        "metadata": {
            "name": "mine",
            "namespace": "red",
            "creationTimestamp": "2026-05-01T11:58:00Z",
            "labels": {"b": "2", "a": "1"},
        },
        "spec": {"warmPoolRef": {"name": "python"}, "env": [{"name": "A", "value": "x"}, {"name": "B", "value": "y"}]},
        "status": status,
    }


def condition(reason: str, status: str = "False", type_: str = "Ready") -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": f"about {reason}",
        "lastTransitionTime": "2026-05-01T11:59:30Z",
    }


def test_a_claim_that_waits() -> None:
    events = [
        {
            "metadata": {"name": "e"},
            "lastTimestamp": "2026-05-01T11:59:00Z",
            "type": "Warning",
            "reason": "WarmPoolNotFound",
            "message": "there is none",
            "count": 3,
            "source": {"component": "claim-controller"},
        }
    ]
    text = described(CLAIMS, claim(conditions=[condition("WarmPoolNotFound")]), events, NOW)
    assert text == (
        "Kind:          claim\n"
        "Name:          mine\n"
        "Namespace:     red\n"
        "Created:       2026-05-01T11:58:00Z (2m ago)\n"
        "Labels:        a=1\n"
        "               b=2\n"
        "\n"
        "Spec:\n"
        "  warmPoolRef:\n"
        "    name: python\n"
        "  env:\n"
        "    - name: A\n"
        "      value: x\n"
        "    - name: B\n"
        "      value: y\n"
        "\n"
        "Conditions:\n"
        "  TYPE    STATUS   SINCE   REASON             MESSAGE\n"
        "  Ready   False    30s     WarmPoolNotFound   about WarmPoolNotFound\n"
        "\n"
        "Events:\n"
        "  AGE        TYPE      REASON             FROM               MESSAGE\n"
        "  60s (x3)   Warning   WarmPoolNotFound   claim-controller   there is none\n"
        "\n"
        "What to do:\n"
        "  - Create the pool (`sandpool pool create`), or name another one: `sandpool get pools -n red`\n"
    )


def test_nothing_to_do_is_not_mentioned() -> None:
    text = described(CLAIMS, claim(conditions=[condition("DependenciesReady", "True")]), [], NOW)
    assert "What to do" not in text
    assert "Events:        none" in text


def test_values_of_secrets_are_not_shown() -> None:
    secret = {"metadata": {"name": "s", "namespace": "red", "creationTimestamp": ""}, "data": {"token": "aHVzaA=="}}
    text = described(SECRETS, secret, [], NOW)
    assert "aHVzaA==" not in text
    assert "token: 8 characters" in text


def test_words_of_tenants_move_no_cursor() -> None:
    body = claim(conditions=[condition("X") | {"message": "a\x1b[2J\nb"}])
    body["metadata"]["labels"] = {"a": "\x1b[2J"}
    body["spec"]["env"][0]["value"] = "two\nlines\x07"
    text = described(CLAIMS, body, [], NOW)
    assert not set(text) & {"\x1b", "\x07", "\r"}
    assert "\nlines" not in text


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_that_asks_for_something_has_advice(reason: Reason) -> None:
    assert (reason in ADVICE) != (reason in CONTENT)


def test_advice_names_commands_that_exist() -> None:
    names = {one.name for one in COMMANDS}
    for sentence in (*ADVICE.values(), *OF_PODS.values()):
        told = sentence.format(word="claim", namespace="red", name="mine")
        for command in told.split("`sandpool ")[1:]:
            assert command.split()[0].rstrip("`") in names, told


@pytest.mark.parametrize(
    ("word", "advised"),
    [
        ("ImagePullBackOff", "the image's name"),
        ("ErrImageNeverPull", "sandpool image import"),
        ("CrashLoopBackOff", "its command"),
        ("CreateContainerConfigError", "Secret"),
        ("Unschedulable", "No node has room"),
        ("SomethingElse", "sandpool why claim/mine"),
    ],
)
def test_advice_about_a_pod_that_does_not_start_is_about_its_own_reason(word: str, advised: str) -> None:
    told = {"message": f"The pod is held up: container main waits: {word}: x"}
    body = claim(conditions=[condition("PodNotStarting", type_="Healthy") | told])
    (sentence,) = advice("claim", "red", "mine", body)
    assert advised in sentence


def test_advice_comes_once_and_knows_unschedulable_pods() -> None:
    body = claim(
        conditions=[
            condition("SandboxNotReady"),
            condition("SandboxNotReady"),
            condition("Unschedulable", type_="PodScheduled"),
            condition("SomethingElse"),
        ]
    )
    found = advice("claim", "red", "mine", body)
    assert len(found) == 2
    assert "claim/mine -n red" in found[0]
    assert "No node has room" in found[1]
