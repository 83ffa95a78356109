"""Which cluster is meant: every place where it can be said, in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sandpool.kube.errors import ConfigError
from sandpool.kube.local_discovery import Running
from sandpool.sdk._sync.connection import Connection
from sandpool.sdk.config import Config, resolve
from sandpool.sdk.errors import NotConfigured

LOCAL, CURRENT, NAMED = "https://127.0.0.1:7443", "https://current:6443", "https://named:6443"


def kubeconfig(path: Path, server: str, token: str, namespace: str = "") -> Path:
    """With a second context `other`."""
    contexts = [
        {"name": "main", "context": {"cluster": "c", "user": "u", "namespace": namespace or None}},
        {"name": "other", "context": {"cluster": "d", "user": "u"}},
    ]
    clusters = [{"name": "c", "cluster": {"server": server}}, {"name": "d", "cluster": {"server": "https://other:1"}}]
    users = [{"name": "u", "user": {"token": token}}]
    body = {"contexts": contexts, "clusters": clusters, "users": users, "current-context": "main"}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(body))
    return path


class Machine:
    """A home with a kubeconfig, and a cluster that runs or does not."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.data = self.home / ".local" / "share" / "sandpool"
        self.named = kubeconfig(root / "named", NAMED, "named-token")
        kubeconfig(self.data / "kubeconfig", LOCAL, "local-token")
        kubeconfig(self.home / ".kube" / "config", CURRENT, "current-token", "team")
        self.running = True

    def find(self, root: Path) -> Running | None:
        if not self.running or root != self.data:
            return None
        return Running(
            pid=1, api=LOCAL, kubeconfig=str(self.data / "kubeconfig"), data_dir=str(self.data), version="1", started="",
            router="http://127.0.0.1:8080",
        )  # fmt: skip

    def resolve(self, config: Config | None = None, **env: str) -> Any:
        return resolve(config, env, self.home, self.find)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def token(resolved: Any) -> str | None:
    return resolved.user.token.reveal() if resolved.user.token else None


EXPLICIT = Config(api="https://explicit:1", token="mine", router="http://router:2", namespace="n")


@pytest.mark.parametrize(
    ("config", "env", "running", "found"),
    [
        # server, token, namespace, router
        (EXPLICIT, {"SANDPOOL_API_URL": "https://env:1"}, True, ("https://explicit:1", "mine", "n", "http://router:2")),
        (
            None,
            {"SANDPOOL_API_URL": "https://env:1/", "SANDPOOL_TOKEN": "t"},
            True,
            ("https://env:1", "t", "default", ""),
        ),
        (None, {}, True, (LOCAL, "local-token", "default", "http://127.0.0.1:8080")),
        (None, {"SANDPOOL_NAMESPACE": "x"}, True, (LOCAL, "local-token", "x", "http://127.0.0.1:8080")),
        (None, {"SANDPOOL_TOKEN": "t"}, True, (LOCAL, "t", "default", "http://127.0.0.1:8080")),
        (None, {"SANDPOOL_ROUTER_URL": "http://r:1"}, True, (LOCAL, "local-token", "default", "http://r:1")),
        (None, {}, False, (CURRENT, "current-token", "team", "")),
        (Config(namespace="mine"), {}, False, (CURRENT, "current-token", "mine", "")),
        (Config(context="other"), {}, True, ("https://other:1", "current-token", "default", "")),
        (None, {"SANDPOOL_DATA_DIR": "/elsewhere"}, True, (CURRENT, "current-token", "team", "")),
    ],
    ids=[
        "explicit",
        "variables",
        "running",
        "namespace",
        "token",
        "router",
        "current",
        "mixed",
        "context",
        "elsewhere",
    ],
)
def test_the_order(machine: Machine, config: Config | None, env: dict[str, str], running: bool, found: Any) -> None:
    machine.running = running
    resolved = machine.resolve(config, **env)
    assert (resolved.cluster.server, token(resolved), resolved.namespace, resolved.router) == found


def test_a_named_kubeconfig_comes_before_what_runs(machine: Machine) -> None:
    assert machine.resolve(SANDPOOL_KUBECONFIG=str(machine.named)).cluster.server == NAMED
    assert machine.resolve(Config(kubeconfig=machine.named)).router == ""


def test_the_kubeconfig_of_what_runs_leads_to_its_router(machine: Machine) -> None:
    own = machine.data / "kubeconfig"
    assert machine.resolve(Config(kubeconfig=own)).router == "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    "config",
    [Config(api="https://explicit:1"), Config(context="other"), Config(data_dir="{data}")],
    ids=["api", "context", "data-dir"],
)
def test_no_credential_of_the_environment_goes_to_a_server_that_was_named_explicitly(
    machine: Machine, config: Config
) -> None:
    if config.data_dir:
        config = Config(data_dir=machine.data)
    resolved = machine.resolve(config, SANDPOOL_TOKEN="secret", SANDPOOL_ROUTER_URL="http://r:1")
    assert token(resolved) != "secret"
    assert resolved.router != "http://r:1"


def test_nothing_is_known(machine: Machine) -> None:
    machine.running = False
    (machine.home / ".kube" / "config").unlink()
    with pytest.raises(NotConfigured) as caught:
        machine.resolve()
    text = str(caught.value)
    assert all(
        part in text for part in (str(machine.data), ".kube/config", "SANDPOOL_API_URL", "`sandpool up --detach`")
    )
    assert isinstance(caught.value, ConfigError)


def test_a_data_directory_where_nothing_runs(machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match="sandpool up --data-dir"):
        machine.resolve(Config(data_dir=tmp_path / "other"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(api="ftp://x"), "SANDPOOL_API_URL.*https://"),
        (Config(api="https://user:pw@x"), "no user"),
        (Config(api="https://x", router="router:80"), "SANDPOOL_ROUTER_URL"),
        (Config(api="https://x:99999"), "is not an address"),
        (Config(api="https://x", token="a", token_file="b"), "keep one"),
        (Config(api="https://x", ca_file="/absent/ca.crt"), "SANDPOOL_CA_FILE"),
    ],
)
def test_what_cannot_be_used_is_named(machine: Machine, config: Config, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        machine.resolve(config)


def test_no_secret_is_shown(machine: Machine) -> None:
    config = Config(api="https://x", token="s3cret")
    assert "s3cret" not in repr(config)
    assert "s3cret" not in repr(machine.resolve(config))
    with pytest.raises(ConfigError) as caught:
        machine.resolve(Config(api="https://u:s3cret@x"))
    assert "s3cret" not in str(caught.value)


def test_a_token_file_is_not_read_before_it_is_needed(machine: Machine, tmp_path: Path) -> None:
    resolved = machine.resolve(Config(api="https://x", token_file=tmp_path / "later"))
    assert resolved.user.token_file == tmp_path / "later"


@pytest.mark.parametrize(
    ("router", "plain", "refused"),
    [
        ("http://router.example:8080", False, True),
        ("http://router.example:8080", True, False),
        ("http://127.0.0.1:7480", False, False),
        ("https://router.example", False, False),
    ],
)
def test_a_token_does_not_travel_unencrypted_unless_told(router: str, plain: bool, refused: bool) -> None:
    config = Config(api="https://kube.example", router=router, token="secret", router_plain=plain)
    with Connection(config) as connection:
        if refused:
            with pytest.raises(NotConfigured, match="SANDPOOL_ROUTER_PLAIN"):
                connection.router()
        else:
            assert connection.router() is not None
