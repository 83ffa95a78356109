"""Where the binaries of the real servers are looked for, and what is said where there are none. Builds nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kube import build


def executable(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No assets, an empty cache and an empty PATH."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))


def test_built_binaries_are_found_by_version() -> None:
    built = executable(build.cache_folder(), "etcd")
    assert build.find("etcd") == built
    assert build.KUBERNETES in str(built)
    assert build.ETCD in str(built)
    assert build.missing(["etcd", "kube-apiserver"]) == ["kube-apiserver"]


def test_assets_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    executable(build.cache_folder(), "etcd")
    given = executable(tmp_path / "assets", "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    assert build.find("etcd") == given


def test_only_clients_are_taken_from_path(tmp_path: Path) -> None:
    for name in ("kubectl", "helm", "etcd"):
        executable(tmp_path / "path", name)
    assert build.find("kubectl") == tmp_path / "path" / "kubectl"
    assert build.find("helm") == tmp_path / "path" / "helm"
    assert build.find("etcd") is None


def test_helm_has_a_version_of_its_own() -> None:
    executable(build.cache_folder(), "helm-v0.0.0")
    assert build.find("helm") is None
    built = executable(build.cache_folder(), f"helm-{build.HELM}")
    assert build.find("helm") == built


def test_so_has_the_controller_that_we_compare_ourselves_with() -> None:
    executable(build.cache_folder(), "agent-sandbox-controller")
    assert build.find("agent-sandbox-controller") is None
    built = executable(build.cache_folder(), f"agent-sandbox-controller-{build.AGENT_SANDBOX}")
    assert build.find("agent-sandbox-controller") == built


def test_the_suites_on_kubernetes_have_it_built_and_do_without_where_that_fails() -> None:
    """The test that runs it skips where it is not there."""
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    _, _, rest = makefile.partition("\ntest-kube: $(READY)")
    recipe = rest.partition("\n\n")[0]
    assert f"\n\t-$(BIN)/python tests/kube/build.py {build.RIVAL}\n" in recipe


def test_a_file_that_cannot_run_is_none() -> None:
    executable(build.cache_folder(), "etcd").chmod(0o644)
    assert build.find("etcd") is None


def test_without_go_it_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(build.CannotBuild, match=r"etcd, kubectl not found .* install Go .* KUBEBUILDER_ASSETS"):
        build.build(["etcd", "kubectl"], tmp_path / "into")


def test_as_a_program(tmp_path: Path) -> None:
    program = [sys.executable, str(Path(build.__file__)), "--into", str(tmp_path / "into"), "kubectl"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: kubectl not found")
    built = executable(tmp_path / "into", "kubectl")
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ))
    assert (done.returncode, done.stdout) == (0, f"{built}\n")
