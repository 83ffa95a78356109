from __future__ import annotations

import base64
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from sandpool.controlplane.apiserver.access.directory import open_access, write_kubeconfig, write_secret

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRETS = ("ca.key", "server.key", "admin.token", "tokens.key")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def server(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / "server.crt").read_bytes())


def names(folder: Path) -> list[str]:
    found = server(folder).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in found]


def test_made_on_first_start_and_kept(tmp_path: Path) -> None:
    first = open_access(tmp_path / "access", (), NOW)
    before = {path.name: path.read_bytes() for path in (tmp_path / "access").iterdir()}
    second = open_access(tmp_path / "access", (), NOW + timedelta(days=300))
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "access").iterdir()}
    assert (first.admin_token, first.signing_key, first.authority) == (
        second.admin_token, second.signing_key, second.authority,
    )  # fmt: skip
    assert len(base64.urlsafe_b64decode(first.admin_token + "=")) == 32
    assert first.admin_token != first.signing_key.decode()


def test_secrets_are_for_their_owner_only(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        open_access(tmp_path / "access", (), NOW)
    finally:
        os.umask(umask)
    assert mode(tmp_path / "access") == 0o700
    assert [mode(tmp_path / "access" / name) for name in SECRETS] == [0o600] * 4
    (tmp_path / "access" / "ca.key").chmod(0o644)
    open_access(tmp_path / "access", (), NOW)
    assert mode(tmp_path / "access" / "ca.key") == 0o600


def test_names(tmp_path: Path) -> None:
    open_access(tmp_path, ("box.example", "192.0.2.7", "127.0.0.1"), NOW)
    assert {"localhost", "kubernetes.default.svc", "127.0.0.1", "::1", "box.example", "192.0.2.7"} <= set(
        names(tmp_path)
    )
    assert len(names(tmp_path)) == len(set(names(tmp_path)))


@pytest.mark.parametrize(
    ("hosts", "later", "renewed"),
    [
        ((), timedelta(days=669), False),
        ((), timedelta(days=671), True),
        (("box.example",), timedelta(0), True),
    ],
)
def test_the_server_certificate_is_renewed_when_due(
    tmp_path: Path, hosts: tuple[str, ...], later: timedelta, renewed: bool
) -> None:
    first = open_access(tmp_path, (), NOW)
    serial = server(tmp_path).serial_number
    second = open_access(tmp_path, hosts, NOW + later)
    assert (server(tmp_path).serial_number != serial) is renewed
    assert first.authority == second.authority


def test_a_new_authority_signs_everything_anew(tmp_path: Path) -> None:
    first = open_access(tmp_path, (), NOW)
    second = open_access(tmp_path, (), NOW + timedelta(days=3600))
    assert first.authority != second.authority
    server(tmp_path).verify_directly_issued_by(x509.load_pem_x509_certificate(second.authority))


@pytest.mark.parametrize("name", ["ca.key", "ca.crt", "server.key", "server.crt", "admin.token"])
def test_a_file_that_is_lost_or_cut_short_is_made_anew(tmp_path: Path, name: str) -> None:
    open_access(tmp_path, (), NOW)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:20])
    open_access(tmp_path, (), NOW).tls()
    (tmp_path / name).unlink()
    access = open_access(tmp_path, (), NOW)
    access.tls()
    server(tmp_path).verify_directly_issued_by(x509.load_pem_x509_certificate(access.authority))


def test_nothing_secret_shows_in_a_repr(tmp_path: Path) -> None:
    access = open_access(tmp_path, (), NOW)
    assert access.admin_token not in repr(access)


def test_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, "https://127.0.0.1:1", b"PEM", "old")
    write_kubeconfig(path, "https://127.0.0.1:2", b"PEM", "t", "team")
    config = yaml.safe_load(path.read_text())
    assert mode(path) == 0o600
    assert config["clusters"][0]["cluster"] == {"server": "https://127.0.0.1:2", "certificate-authority-data": "UEVN"}
    assert config["users"][0]["user"] == {"token": "t"}
    assert config["contexts"][0]["context"]["namespace"] == "team"
    assert [entry.name for entry in tmp_path.iterdir()] == ["kubeconfig"]


def test_a_crash_between_write_and_rename_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_secret(path, b"old")
    (tmp_path / ".secret.new").write_bytes(b"ha")  # what a crash left behind
    assert path.read_bytes() == b"old"
    write_secret(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("content", [b"\xff" * 64, b"short", b"", b"line\n" * 20])
def test_a_secret_that_was_overwritten_is_made_anew(tmp_path: Path, content: bytes) -> None:
    before = open_access(tmp_path, (), NOW)
    for name in ("admin.token", "tokens.key"):
        (tmp_path / name).write_bytes(content)
    after = open_access(tmp_path, (), NOW)
    assert after.admin_token != before.admin_token
    assert after.signing_key != before.signing_key
    assert len(base64.urlsafe_b64decode(after.admin_token + "=")) == 32
