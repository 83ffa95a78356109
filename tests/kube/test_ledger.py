"""The ledger of permissions adds up what several processes saw."""

from __future__ import annotations

import json
from pathlib import Path

from support.kube.access import USER
from support.kube.audit import Audit
from support.kube.ledger import Ledger


def an_audit(path: Path, verb: str, resource: str) -> Audit:
    entry = {"verb": verb, "user": {"username": USER}, "objectRef": {"resource": resource}}
    path.write_text(json.dumps(entry) + "\n")
    return Audit(path)


def test_one_process_reads_what_others_closed(tmp_path: Path) -> None:
    first, second = Ledger(tmp_path / "shared"), Ledger(tmp_path / "shared")
    first.open("product", an_audit(tmp_path / "first", "get", "pods"))
    second.open("product", an_audit(tmp_path / "second", "create", "pods"))
    assert (second.runs, second.used) == ({"product"}, {("create", "pods")})
    first.close("product")
    second.close("product")
    last = Ledger(tmp_path / "shared")
    last.open("burst", an_audit(tmp_path / "last", "patch", "sandboxes"))
    assert last.runs == {"product", "burst"}
    assert last.used == {("get", "pods"), ("create", "pods"), ("patch", "sandboxes")}


def test_alone_it_writes_nothing(tmp_path: Path) -> None:
    ledger = Ledger()
    ledger.open("burst", an_audit(tmp_path / "log", "get", "pods"))
    ledger.close("burst")
    assert (ledger.runs, ledger.used) == ({"burst"}, {("get", "pods")})
    assert [each.name for each in tmp_path.iterdir()] == ["log"]
