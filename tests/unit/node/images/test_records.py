"""Who may have an image that is here."""

from __future__ import annotations

from sandpool.node.images.image import Credential
from sandpool.node.images.records import (
    IMPORTED,
    LayerAccess,
    NameRecord,
    may_use,
    merge_access,
    merge_names,
    proof,
    provider,
)
from sandpool.node.images.reference import parse_name

NAME = parse_name("r.example/team/tool:1")


def record(id_: str = "sha256:a", **more: object) -> NameRecord:
    return NameRecord(reference=str(NAME), id=id_, **more)  # type: ignore[arg-type]


def test_a_proof_is_of_one_login_at_one_registry() -> None:
    one = proof(b"key", NAME, Credential("r.example", "user", "password"))
    assert one == proof(b"key", NAME, Credential("*.example", "user", "password"))
    others = [
        proof(b"other", NAME, Credential("r.example", "user", "password")),
        proof(b"key", parse_name("s.example/team/tool:1"), Credential("r.example", "user", "password")),
        proof(b"key", NAME, Credential("r.example", "user", "passwordx")),
        proof(b"key", NAME, Credential("r.example", "userp", "assword")),
    ]
    assert one not in others
    assert "password" not in one


def test_who_may_use_an_image() -> None:
    assert not may_use(record(), ())
    assert not may_use(record(proofs=("a",)), ())
    assert not may_use(record(proofs=("a",)), ("b",))
    assert may_use(record(proofs=("a",)), ("b", "a"))
    assert may_use(record(public=True), ())
    assert may_use(record(origin=IMPORTED), ())


def test_what_was_proved_is_of_one_image() -> None:
    old = record(proofs=("a",))
    assert merge_names(None, old) == old
    assert merge_names(old, record(proofs=("b",))).proofs == ("a", "b")
    assert merge_names(old, record("sha256:b", proofs=("b",))).proofs == ("b",)
    assert merge_names(record(public=True), record(proofs=("b",))).public
    assert merge_names(record(origin=IMPORTED), record(proofs=("b",))).public
    assert not merge_names(record("sha256:b", public=True), record(proofs=("b",))).public
    many = merge_names(record(proofs=tuple(map(str, range(1000)))), record(proofs=("new",)))
    assert len(many.proofs) == 256
    assert many.proofs[-1] == "new"


def test_layers() -> None:
    here = provider(NAME, "sha256:1")
    assert here == "r.example/team/tool@sha256:1"
    access = merge_access(LayerAccess(), False, (here,))
    assert access == LayerAccess(providers=(here,))
    assert merge_access(access, True, ()) == LayerAccess(public=True, providers=(here,))
    assert merge_access(merge_access(access, False, ("x",)), False, (here,)).providers == ("x", here)
