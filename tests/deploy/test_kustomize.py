"""The kustomization: what `sandpool install` prints, for who builds on it with kustomize; and a component that not everybody wants."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandpool.install.objects import objects
from sandpool.install.priority import priority
from sandpool.install.settings import Settings
from support.kube.helm import by_identity, documents
from support.kube.kubectl import kubectl_path

DEPLOY = Path(__file__).parents[2] / "deploy"
pytestmark = pytest.mark.kubectl


def built(folder: Path) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Nothing is fetched: a kustomization that named an address would fail here."""
    command = [kubectl_path(), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return by_identity(documents(done.stdout))


def test_it_is_what_install_prints() -> None:
    assert built(DEPLOY) == by_identity(objects(Settings()))


def test_a_kustomization_of_ones_own(tmp_path: Path) -> None:
    """As the guide has it: another image, and the priority level."""
    overlay = {
        "resources": [os.path.relpath(DEPLOY, tmp_path.resolve())],
        "components": [os.path.relpath(DEPLOY / "kustomize/api-priority", tmp_path.resolve())],
        "images": [{"name": "sandpool-controller", "newName": "registry.example.com/sandpool", "newTag": "1"}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    found = built(tmp_path)
    assert found.keys() - by_identity(objects(Settings())).keys() == by_identity(priority()).keys()
    images = {
        container["image"]
        for (kind, *_), body in found.items()
        if kind == "Deployment"
        for container in body["spec"]["template"]["spec"]["containers"]
    }
    assert images == {"registry.example.com/sandpool:1"}
