"""Who may have an image that is here."""

from __future__ import annotations

from sandpool.node.images.access import granted, may_use, merged, proof, provider
from sandpool.node.images.port import Credential
from sandpool.node.images.records import IMPORTED, LayerAccess, NameRecord
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
    assert merged(None, old) == old
    assert merged(old, record(proofs=("b",))).proofs == ("a", "b")
    assert merged(old, record("sha256:b", proofs=("b",))).proofs == ("b",)
    assert merged(record(public=True), record(proofs=("b",))).public
    assert merged(record(origin=IMPORTED), record(proofs=("b",))).public
    assert not merged(record("sha256:b", public=True), record(proofs=("b",))).public
    many = merged(record(proofs=tuple(map(str, range(1000)))), record(proofs=("new",)))
    assert len(many.proofs) == 256
    assert many.proofs[-1] == "new"


def test_layers() -> None:
    here = provider(NAME, "sha256:1")
    assert here == "r.example/team/tool@sha256:1"
    access = granted(LayerAccess(), False, (here,))
    assert access == LayerAccess(providers=(here,))
    assert granted(access, True, ()) == LayerAccess(public=True, providers=(here,))
    assert granted(granted(access, False, ("x",)), False, (here,)).providers == ("x", here)
