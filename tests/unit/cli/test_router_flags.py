"""The flags of `sandpool router`: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.main import run
from sandpool.cli.router import ListenFlags, RouterSeenFlags, RouterWhereFlags, WhoFlags
from sandpool.loop.serving_tls import CertificateFiles
from sandpool.router.guard import Allowed
from sandpool.telemetry.pages import Address

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_addresses_are_for_others_only_in_a_pod() -> None:
    assert ListenFlags().address({}) == Address("127.0.0.1", 8080)
    assert ListenFlags().address(IN_A_POD) == Address("", 8080)
    assert ListenFlags(listen_address="[::]:9").address({}) == Address("::", 9)
    assert RouterSeenFlags().addresses({}) == (Address("127.0.0.1", 9090), Address("127.0.0.1", 8081))
    assert RouterSeenFlags().addresses(IN_A_POD) == (Address("", 9090), Address("", 8081))
    assert RouterSeenFlags(metrics_bind_address="0").addresses({})[0] is None


def test_what_is_given_is_meant() -> None:
    files = ListenFlags(tls_cert_file=Path("a"), tls_key_file=Path("b")).certificate()
    assert files == CertificateFiles(Path("a"), Path("b"))
    assert ListenFlags().certificate() is None
    assert RouterWhereFlags(namespaces="a, b,a").served() == ("a", "b")
    allowed = WhoFlags(allowed_host=("Boxes.Example:443",), allowed_origin=("https://IDE.example",)).allowed()
    assert allowed == Allowed(frozenset({"boxes.example:443"}), frozenset({"https://ide.example"}))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen-address", "0"], "--listen-address"),
        (["--listen-address", "here"], "--listen-address 'here'"),
        (["--tls-cert-file", "x"], "--tls-key-file"),
        (["--tls-key-file", "x"], "--tls-cert-file"),
        (["--url", "boxes.example"], "--url"),
        (["--url", "https://boxes.example/?x"], "--url"),
        (["--namespaces", "Red"], "--namespaces: 'Red'"),
        (["--allowed-host", "a/b"], "--allowed-host"),
        (["--allowed-origin", "ide.example"], "--allowed-origin"),
        (["--allowed-origin", "https://ide.example/"], "--allowed-origin"),
        (["--metrics-bind-address", "x"], "--metrics-bind-address"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["router", *arguments]) == USAGE
    assert said in capsys.readouterr().err


def test_an_address_that_is_none_is_a_mistake_of_usage() -> None:
    with pytest.raises(Exit) as caught:
        ListenFlags(listen_address="0").address({})
    assert caught.value.code == USAGE
