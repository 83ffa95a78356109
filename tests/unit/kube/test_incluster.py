from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.kube.config import Config, load_in_cluster
from sandpool.kube.errors import ConfigError

ENV = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    for name, text in (("token", "secret-token"), ("ca.crt", "CA"), ("namespace", "team\n")):
        (tmp_path / name).write_text(text)
    return tmp_path


def load(mount: Path, **env: str) -> Config:
    return load_in_cluster(ENV | env, mount)


def test_everything_in_place(mount: Path) -> None:
    config = load(mount)
    assert (config.cluster.server, config.cluster.ca, config.namespace) == ("https://10.0.0.1:443", "CA", "team")
    assert config.user.token_file == mount / "token"
    assert "secret-token" not in repr(config)


def test_an_address_of_the_newer_kind(mount: Path) -> None:
    assert load(mount, KUBERNETES_SERVICE_HOST="fd00::1").cluster.server == "https://[fd00::1]:443"


def test_without_a_namespace_it_is_default(mount: Path) -> None:
    (mount / "namespace").unlink()
    assert load(mount).namespace == "default"


@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_a_missing_file_is_named(mount: Path, name: str) -> None:
    (mount / name).unlink()
    with pytest.raises(ConfigError, match=rf"/{name}: .* is not there; let the pod mount its service account"):
        load(mount)


def test_outside_of_a_pod(mount: Path) -> None:
    with pytest.raises(ConfigError, match="does not run in a pod"):
        load_in_cluster({}, mount)
