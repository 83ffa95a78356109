"""What users call kinds and objects."""

from __future__ import annotations

import pytest

from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.kinds import chosen, kind_of, plural, split, word
from sandpool.model.kinds import ALL, CLAIMS, NETWORK_POLICIES, PODS, POOLS, SANDBOXES, TEMPLATES


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("claim claims sandboxclaim sandboxclaims SandboxClaim sandboxclaims.extensions.agents.x-k8s.io", CLAIMS),
        ("sandboxclaim.extensions.agents.x-k8s.io sandboxclaims.v1beta1.extensions.agents.x-k8s.io", CLAIMS),
        ("sandbox sandboxes sandboxes.agents.x-k8s.io", SANDBOXES),
        ("pool pools swp sandboxwarmpool sandboxwarmpools", POOLS),
        ("template templates sandboxtemplate", TEMPLATES),
        ("pod pods po", PODS),
        ("netpol networkpolicies networkpolicy.networking.k8s.io", NETWORK_POLICIES),
    ],
)
def test_every_way_to_name_a_kind(words: str, kind: object) -> None:
    assert [kind_of(text) for text in words.split()] == [kind] * len(words.split())


def test_no_word_means_two_kinds() -> None:
    for kind in ALL:
        assert kind_of(kind.plural) == kind_of(kind.singular) == kind_of(word(kind)) == kind_of(plural(kind)) == kind


@pytest.mark.parametrize("text", ["", "moon", "claim/", "pods.extensions.agents.x-k8s.io"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(Exit) as refused:
        kind_of(text)
    assert refused.value.code == USAGE


def test_objects_by_kind_and_name() -> None:
    assert split("pool/python") == (POOLS, "python")
    assert split("mine", CLAIMS) == (CLAIMS, "mine")
    assert split("sandbox/x", CLAIMS) == (SANDBOXES, "x")


@pytest.mark.parametrize("text", ["", "mine", "pool/", "a/b/c", "/x"])
def test_what_names_no_object(text: str) -> None:
    with pytest.raises(Exit) as refused:
        split(text)
    assert refused.value.code == USAGE


def test_the_grammar_of_kubectl() -> None:
    assert list(chosen(["claims"])) == [(CLAIMS, ())]
    assert list(chosen(["claim", "a", "b"])) == [(CLAIMS, ("a", "b"))]
    assert list(chosen(["claims,pools"])) == [(CLAIMS, ()), (POOLS, ())]
    assert list(chosen(["claim/a", "pool/b"])) == [(CLAIMS, ("a",)), (POOLS, ("b",))]
    for mistake in ([], ["claims,pools", "a"], ["claim/a", "b"], ["claim", "a/b"]):
        with pytest.raises(Exit) as refused:
            list(chosen(mistake))
        assert refused.value.code == USAGE
