"""Kubeconfigs from real files, because files are what they are made of."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandpool.kube.config import Config, InteractiveMode
from sandpool.kube.credentials import read_credential
from sandpool.kube.errors import ConfigError
from sandpool.kube.kubeconfig import load_config, load_kubeconfig

SECRET = "hunter2-do-not-show"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def a_kubeconfig(
    cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, context: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dev",
        "clusters": [{"name": "c", "cluster": {"server": "https://host:6443"} | (cluster or {})}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u"} | (context or {})}],
    }


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def load(folder: Path, **parts: dict[str, Any]) -> Config:
    return load_kubeconfig([write(folder / "config", a_kubeconfig(**parts))])


def header(config: Config) -> str:
    return dict(read_credential(config.user).headers).get("Authorization", "")


def test_the_current_context(tmp_path: Path) -> None:
    config = load(tmp_path, context={"namespace": "team"})
    assert config.cluster.server == "https://host:6443"
    assert config.namespace == "team"
    assert config.source == str(tmp_path / "config")


def test_a_context_that_was_asked_for(tmp_path: Path) -> None:
    content = a_kubeconfig()
    content["clusters"].append({"name": "other", "cluster": {"server": "http://other/path/"}})
    content["contexts"].append({"name": "prod", "context": {"cluster": "other", "user": ""}})
    config = load_kubeconfig([write(tmp_path / "config", content)], context="prod")
    assert config.cluster.server == "http://other/path"
    assert config.namespace == "default"
    assert header(config) == ""


def test_the_first_of_several_files_decides(tmp_path: Path) -> None:
    first = write(tmp_path / "1/config", {"contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u"}}]})
    second = write(tmp_path / "2/config", a_kubeconfig(user={"tokenFile": "token"}, context={"namespace": "late"}))
    third = write(tmp_path / "3/config", a_kubeconfig(cluster={"server": "https://wrong"}) | {"current-context": "x"})
    write(tmp_path / "2/token", "from two\n")
    env = {"KUBECONFIG": f"{first}:{tmp_path}/absent:{second}::{third}"}
    config = load_config(env, tmp_path)
    assert config.cluster.server == "https://host:6443"
    assert config.namespace == "default", "the first file's context has no namespace, and it is the whole context"
    assert header(config) == "Bearer from two", "a relative path means the folder of its own file"


def test_the_home_folder_is_the_last_place(tmp_path: Path) -> None:
    write(tmp_path / ".kube/config", a_kubeconfig())
    assert load_config({}, tmp_path).cluster.server == "https://host:6443"


def test_nothing_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.kube/config; set KUBECONFIG"):
        load_config({}, tmp_path)
    with pytest.raises(ConfigError, match="/absent"):
        load_config({"KUBECONFIG": f"{tmp_path}/absent"}, tmp_path)
    with pytest.raises(ConfigError, match="/named: the kubeconfig is not there"):
        load_config({}, tmp_path, path=tmp_path / "named")


def test_a_path_that_was_asked_for_wins(tmp_path: Path) -> None:
    named = write(tmp_path / "named", a_kubeconfig(cluster={"server": "https://named"}))
    other = write(tmp_path / "other", a_kubeconfig())
    assert load_config({"KUBECONFIG": str(other)}, tmp_path, path=named).cluster.server == "https://named"


@pytest.mark.parametrize(
    ("user", "wanted"),
    [
        ({"token": SECRET}, f"Bearer {SECRET}"),
        ({"username": "me", "password": SECRET}, f"Basic {b64(f'me:{SECRET}')}"),
        ({}, ""),
    ],
)
def test_what_a_user_shows(tmp_path: Path, user: dict[str, Any], wanted: str) -> None:
    config = load(tmp_path, user=user)
    assert header(config) == wanted
    assert SECRET not in repr(config) + repr(read_credential(config.user))


def test_a_token_of_digits_stays_as_it_is(tmp_path: Path) -> None:
    text = yaml.safe_dump(a_kubeconfig()).replace("user: {}", "user: {token: 0123456}")
    assert header(load_kubeconfig([write(tmp_path / "config", text)])) == "Bearer 0123456"


def test_a_token_file_goes_before_a_token(tmp_path: Path) -> None:
    write(tmp_path / "token", "fresh\n")
    assert header(load(tmp_path, user={"token": "stale", "tokenFile": "token"})) == "Bearer fresh"


def test_certificates_from_data_and_from_files(tmp_path: Path) -> None:
    write(tmp_path / "pki/ca.crt", "CA")
    write(tmp_path / "pki/tls.key", f"KEY {SECRET}")
    user = {"client-certificate-data": b64("CERT"), "client-key": "pki/tls.key"}
    config = load(tmp_path, cluster={"certificate-authority": "pki/ca.crt", "tls-server-name": "kube"}, user=user)
    assert (config.cluster.ca, config.cluster.server_name) == ("CA", "kube")
    certificate = read_credential(config.user).certificate
    assert certificate is not None
    assert (certificate.chain.reveal(), certificate.key.reveal()) == ("CERT", f"KEY {SECRET}")
    assert SECRET not in repr(certificate) + str(certificate.key) + f"{certificate.key}"


def test_data_goes_before_a_file(tmp_path: Path) -> None:
    cluster = {"certificate-authority": "absent", "certificate-authority-data": b64("DATA")}
    assert load(tmp_path, cluster=cluster).cluster.ca == "DATA"


def test_impersonation(tmp_path: Path) -> None:
    user = {"token": "t", "as": "bob", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"x.io/y": ["1", "2"]}}
    assert load(tmp_path, user=user).user.headers == (
        ("Impersonate-User", "bob"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-x.io%2Fy", "1"),
        ("Impersonate-Extra-x.io%2Fy", "2"),
    )


def test_a_plugin(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "./bin/login",
        "args": ["--password", SECRET],
        "env": [{"name": "A", "value": SECRET}],
        "installHint": "get it",
        "provideClusterInfo": True,
    }
    cluster = {
        "certificate-authority-data": b64("CA"),
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}],
    }
    config = load(tmp_path, cluster=cluster, user={"exec": plugin})
    spec = config.user.exec
    assert spec is not None
    assert spec.command == str(tmp_path / "bin/login")
    assert (spec.args, spec.env) == (("--password", SECRET), (("A", SECRET),))
    assert spec.interactive is InteractiveMode.IF_AVAILABLE
    assert spec.cluster == {
        "server": "https://host:6443",
        "certificate-authority-data": b64("CA"),
        "config": {"audience": "x"},
    }
    assert SECRET not in repr(config)


def test_nulls_are_as_good_as_nothing(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "login",
        "args": None,
        "env": None,
        "interactiveMode": "Never",
        "provideClusterInfo": False,
    }
    content = a_kubeconfig(user={"exec": plugin, "token": None}) | {"preferences": None}
    config = load_kubeconfig([write(tmp_path / "config", content)])
    assert config.user.exec is not None
    assert config.user.exec.command == "login", "a bare name is looked up on PATH"
    assert config.user.exec.cluster is None


V1 = "client.authentication.k8s.io/v1"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"cluster": {"server": "host:6443"}}, r"config: clusters\[c\].cluster.server: must be an address"),
        ({"cluster": {"server": "https://"}}, "cluster.server: must be an address"),
        ({"cluster": {"server": "https://host:port"}}, "cluster.server: must be an address"),
        ({"cluster": {"server": f"https://me:{SECRET}@host"}}, "cluster.server: holds a user or a password"),
        ({"cluster": {"server": "https://host?x=1"}}, "cluster.server: has a query"),
        ({"cluster": {"proxy-url": "http://p"}}, "cluster.proxy-url: proxies are not supported"),
        ({"cluster": {"certificate-authority-data": "%%"}}, "cluster.certificate-authority-data: is not the base64"),
        ({"cluster": {"certificate-authority": "gone"}}, "gone: the certificate authority is not there"),
        (
            {"cluster": {"certificate-authority-data": "Q0E=", "insecure-skip-tls-verify": True}},
            "insecure-skip-tls-verify: contradicts",
        ),
        ({"context": {"cluster": "nope"}}, r"contexts\[dev\].context.cluster: there is no cluster 'nope'"),
        ({"context": {"user": "nope"}}, r"contexts\[dev\].context.user: there is no user 'nope'"),
        ({"user": {"token": SECRET, "username": "x"}}, r"users\[u\].user: has token and username"),
        ({"user": {"token": SECRET, "exec": {"command": "x"}}}, "has token and exec"),
        ({"user": {"client-key-data": b64(SECRET)}}, "client-certificate: is missing"),
        ({"user": {"client-certificate": "x"}}, "client-key: is missing"),
        ({"user": {"client-key-data": SECRET, "client-certificate": "x"}}, "client-key-data: is not the base64"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "auth-provider: Kubernetes removed it"),
        ({"user": {"as-groups": ["x"]}}, "user.as: is missing"),
        ({"user": {"as": "bob\r\nX-Remote-User: root"}}, "user.as: .* cannot carry"),
        ({"user": {"exec": {"command": "x"}}}, "exec.apiVersion: must be"),
        ({"user": {"exec": {"command": "x", "apiVersion": f"{V1}alpha1"}}}, "exec.apiVersion: must be"),
        ({"user": {"exec": {"apiVersion": V1, "interactiveMode": "Never"}}}, "exec.command: is missing"),
        ({"user": {"exec": {"apiVersion": V1, "command": "x"}}}, "exec.interactiveMode: is required"),
        (
            {"user": {"exec": {"apiVersion": V1, "command": "x", "interactiveMode": SECRET}}},
            "exec.interactiveMode: must be Never",
        ),
        ({"user": {"token": [SECRET]}}, r"not a kubeconfig: Expected `str \| null`, got `array` - at `\$.users"),
    ],
)
def test_mistakes_are_named_and_secrets_are_not(tmp_path: Path, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, **parts)
    assert str(tmp_path) in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"users:\n- name: u\n  user: {{token: '{SECRET}\n", "not YAML at line"),
        (f"\x00{SECRET}", "not YAML"),
        (f"- {SECRET}", "not a kubeconfig"),
        (f"!!python/object:{SECRET} x", "not YAML"),
        (f"users: *{SECRET}", "not YAML at line 1"),
        ("", "current-context is not set; choose one of none"),
        ("current-context: dev", "there is no context 'dev'"),
    ],
)
def test_files_that_are_no_kubeconfig(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_kubeconfig([write(tmp_path / "config", text)])
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory"):
        load_kubeconfig([tmp_path])


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = write(tmp_path / "config", a_kubeconfig())
    path.chmod(0)
    try:
        path.read_bytes()
    except PermissionError:
        pass
    else:
        pytest.skip("this user may read everything")
    with pytest.raises(ConfigError, match="may not be read by this user; change its mode"):
        load_kubeconfig([path])
