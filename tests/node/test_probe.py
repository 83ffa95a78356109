"""What the probe concludes from what it reads, and how tests of a node behave where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from node import build, probe, run

TESTS = Path(__file__).parents[1]
ALL = f"{(1 << 41) - 1:016x}"
V1_FILES = [f"{name}/cgroup.procs" for name in probe.V1]


def machine(folder: Path, files: list[str], text: str = "") -> Path:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return folder


def test_capabilities_are_named() -> None:
    assert probe.lacking_capabilities(f"Name:\tx\nCapEff:\t{ALL}\n") == ""
    without = int(ALL, 16) & ~(1 << 21) & ~(1 << 12)
    said = probe.lacking_capabilities(f"CapEff:\t{without:016x}\n")
    assert "CAP_NET_ADMIN, CAP_SYS_ADMIN:" in said


def test_version_1_needs_each_hierarchy(tmp_path: Path) -> None:
    cgroups = machine(tmp_path, V1_FILES)
    assert probe.lacking_controllers(cgroups) == ""
    (cgroups / "memory/cgroup.procs").unlink()
    assert probe.lacking_controllers(cgroups) == f"memory not in {cgroups}"


def test_version_2_needs_controllers_that_are_passed_on(tmp_path: Path) -> None:
    cgroups = machine(tmp_path, ["cgroup.controllers", "cgroup.subtree_control"], "cpu cpuset io memory pids")
    assert probe.lacking_controllers(cgroups) == ""
    (cgroups / "cgroup.subtree_control").write_text("cpu io")
    assert probe.lacking_controllers(cgroups) == f"cpuset, memory, pids not in {cgroups}/cgroup.subtree_control"


def test_a_controller_under_two_names_is_one_folder(tmp_path: Path) -> None:
    cgroups = machine(tmp_path, ["cpu,cpuacct/cgroup.procs", "memory/cgroup.procs"])
    (cgroups / "cpu").symlink_to("cpu,cpuacct")
    (cgroups / "cpuacct").symlink_to("cpu,cpuacct")
    assert probe.controller_folders(cgroups) == [cgroups / "cpu,cpuacct", cgroups / "memory"]


def test_groups_are_removed_from_the_inside_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cgroups = machine(tmp_path, ["cpu/cgroup.procs", "memory/cgroup.procs"])
    for top in ("cpu", "memory"):
        (cgroups / top / "sandpool-node-x/kubepods/pod1").mkdir(parents=True)
        (cgroups / top / "other").mkdir()
    monkeypatch.setattr(probe, "CGROUPS", cgroups)
    run.remove_groups("sandpool-node-x")
    assert sorted(path.name for path in cgroups.glob("*/*") if path.is_dir()) == ["other", "other"]


def test_a_machine_that_forbids_it_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert probe.forbidden().startswith("root: containerd and the kubelet need root")


def test_the_cache_is_named_by_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.CONTAINERD in str(build.cache_folder())
    assert "containerd" in build.missing()
    binary = build.cache_folder() / "containerd"
    binary.parent.mkdir(parents=True)
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    assert build.find("containerd") == binary


def test_outside_its_namespaces_the_suite_says_how_to_run_it() -> None:
    environment = {name: value for name, value in os.environ.items() if name != run.VARIABLE}
    command = [sys.executable, "-m", "pytest", str(TESTS / "node/test_real_node.py"), "-m", "node", "-q", "-rs"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)
    assert done.returncode == 0, done.stdout
    assert " skipped" in done.stdout
    assert "passed" not in done.stdout
    assert "make test-node" in done.stdout or probe.forbidden() in done.stdout


def test_an_ordinary_run_leaves_them_out() -> None:
    command = [sys.executable, "-m", "pytest", str(TESTS / "node/test_real_node.py"), "-q"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert "deselected" in done.stdout, done.stdout
    assert "skipped" not in done.stdout
