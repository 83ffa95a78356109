"""The real helm, and the objects that our chart becomes with it."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.build import KUBERNETES, find

CHART = Path(__file__).parents[3] / "deploy/helm/sandpool"
BUILD = Path(__file__).parents[2] / "kube" / "build.py"
NAMESPACE = "agent-sandbox-system"


@cache
def helm_path() -> str:
    """Where helm is. Skips the test, with the reason, where there is none."""
    found = find("helm")
    if found is None:
        pytest.skip(f"no helm: run `{sys.executable} {BUILD.relative_to(CHART.parents[2])} helm`")
    return str(found)


def helm(*arguments: str, home: Path, check: bool = True, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """One run, with a home of its own, so that nothing of the machine's leaks in."""
    homes = {f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    done = subprocess.run(
        [helm_path(), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={"HOME": str(home), **homes},
    )
    if check and done.returncode != 0:
        raise AssertionError(f"helm {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def template(*arguments: str, home: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    version = KUBERNETES.removeprefix("v")
    return helm(
        "template", "sandpool", str(CHART), "--namespace", NAMESPACE, "--kube-version", version, *arguments,
        home=home, check=check,
    )  # fmt: skip


def rendered(*arguments: str, home: Path) -> list[dict[str, Any]]:
    """The chart's objects."""
    return documents(template(*arguments, home=home).stdout)


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


def by_identity(objects: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """By kind, namespace and name; two of one identity would overwrite each other on a cluster."""
    found = {}
    for body in objects:
        meta = body["metadata"]
        identity = body["kind"], meta.get("namespace", ""), meta["name"]
        assert identity not in found, f"{identity} is there twice"
        found[identity] = body
    return found
