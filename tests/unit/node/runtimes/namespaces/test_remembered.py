"""What is kept of a probe and of control groups, and what it is believed for."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.node.backend import Probe
from sandpool.node.runtimes.namespaces.cgroup_manager import CgroupJournal, own_groups
from sandpool.node.runtimes.namespaces.probe import facts_of_this_machine, fingerprint, load_cached, store_cached

WENT_WELL = Probe(True, "", "this machine does not enforce: landlock", frozenset({"network", "seccomp"}))


def test_a_probe_is_believed_on_the_same_machine_only(tmp_path: Path) -> None:
    file = tmp_path / "probed.json"
    store_cached(file, "here", WENT_WELL)
    assert load_cached(file, "here") == WENT_WELL
    assert load_cached(file, "elsewhere") is None


def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "probed.json"
    store_cached(file, "here", WENT_WELL)
    store_cached(file, "here", Probe(False, "NotIsolated", "no"))
    assert load_cached(file, "here") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"machine": 1}', '{"machine": "here"}'])
def test_what_makes_no_sense_is_not_believed(tmp_path: Path, text: str) -> None:
    file = tmp_path / "probed.json"
    file.write_text(text)
    assert load_cached(file, "here") is None


def test_any_fact_that_changes_makes_another_machine(tmp_path: Path) -> None:
    facts = facts_of_this_machine(tmp_path)
    assert facts["/proc/sys/kernel/random/boot_id"]
    assert fingerprint(facts) == fingerprint(dict(reversed(facts.items())))
    for name in facts:
        assert fingerprint(facts | {name: "other"}) != fingerprint(facts)
    assert fingerprint(facts | {"runsc": ""}) != fingerprint(facts)


def test_groups_are_ours_by_name_and_place() -> None:
    mounted = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"]
    mine = ["/sys/fs/cgroup/memory/sandpool-x", "/sys/fs/cgroup/a/b/sandpool-x"]
    others = [
        "/sys/fs/cgroup/memory/sandpool-y",
        "/sys/fs/cgroup/memory/sandpool-x/pod",
        "/sys/fs/cgroupsandpool-x",
        "/home/sandpool-x",
        "/sys/fs/cgroup/../../home/sandpool-x",
        "sandpool-x",
        "",
    ]
    assert own_groups([*mine, *others, *mine], "sandpool-x", mounted) == mine
    assert own_groups(mine, "sandpool-x", []) == []


def test_a_journal_keeps_what_is_still_there(tmp_path: Path) -> None:
    journal = CgroupJournal(tmp_path / "new" / "cgroups.json")
    assert journal.read() == []
    journal.add(["/a", "/b", "/a"])
    journal.add(["/b", "/c"])
    assert journal.read() == ["/a", "/b", "/c"]
    journal.keep(["/b", "/other"])
    assert journal.read() == ["/b"]
    journal.keep([])
    assert not journal.file.exists()
    for text in ("", "{", '{"a": 1}', "[1]"):
        journal.file.write_text(text)
        assert journal.read() == []
