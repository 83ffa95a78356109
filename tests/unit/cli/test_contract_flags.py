"""Arguments written for another implementation: each is taken, or refused with what to do instead, and the reference lists it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from sandpool.cli.contract_flags import ANYWAY, INSTEAD, ContractFlags, flag
from sandpool.cli.controller_flags import LeadFlags, MemberFlags, PaceFlags, SeenFlags, WhereFlags
from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.main import run
from sandpool.cli.tls_flags import TlsFlags

REFERENCE = Path(__file__).parents[3] / "docs/reference/command-line.md"
CONTRACT = [
    "--extensions",
    "--cluster-domain",
    "--metrics-bind-address",
    "--metrics-secure-serving",
    "--metrics-cert-dir",
    "--tls-min-version",
    "--tls-cipher-suites",
    "--health-probe-bind-address",
    "--leader-elect",
    "--leader-election-namespace",
    "--enable-tracing",
    "--enable-pprof",
    "--enable-pprof-debug",
    "--pprof-block-profile-rate",
    "--pprof-mutex-profile-fraction",
    "--kube-api-qps",
    "--kube-api-burst",
    "--api-connections",
    "--separate-watch-connection",
    "--cache-label-selectors",
    "--sandbox-write-behind-window",
    "--sandbox-concurrent-workers",
    "--sandbox-claim-concurrent-workers",
    "--sandbox-warm-pool-concurrent-workers",
    "--sandbox-template-concurrent-workers",
    "--sandbox-warm-pool-max-batch-size",
    "--sandbox-warm-pool-replenish-delay",
    "--sandbox-warm-pool-max-refill-rate",
    "--sandbox-warm-pool-readiness-grace-period",
    "--sandbox-warm-pool-unschedulable-recheck-interval",
    "--enable-warm-pool-eviction",
    "--disable-claim-events",
    "--disable-claim-observability-annotations",
    "--enable-webhook",
    "--manage-webhook-certs",
    "--webhook-port",
    "--webhook-cert-dir",
    "--webhook-cert-name",
    "--webhook-key-name",
    "--webhook-service-name",
    "--webhook-namespace",
    "--kubeconfig",
    "--zap-devel",
    "--zap-encoder",
    "--zap-log-level",
    "--zap-stacktrace-level",
    "--zap-time-encoding",
]
OURS = {
    flag(each.name)
    for group in (WhereFlags, LeadFlags, PaceFlags, MemberFlags, SeenFlags, TlsFlags)
    for each in fields(group)
}
REFUSED = {flag(each.name) for each in fields(ContractFlags)}


def test_every_flag_of_the_contract_has_an_answer() -> None:
    assert set() == OURS & REFUSED
    assert set(CONTRACT) - OURS == REFUSED
    assert {flag(name) for name in INSTEAD} == REFUSED
    assert {flag(name) for name in ANYWAY} <= REFUSED


@pytest.mark.parametrize("name", CONTRACT)
def test_the_reference_tells_the_answer(name: str) -> None:
    assert f"| `{name}" in REFERENCE.read_text() or f", `{name}" in REFERENCE.read_text()


def test_what_is_so_anyway_is_taken_without_a_word() -> None:
    for taken in (
        ContractFlags(),
        ContractFlags(enable_webhook=False, separate_watch_connection=True, zap_encoder="json"),
        ContractFlags(sandbox_write_behind_window="0s", manage_webhook_certs=False, enable_pprof=False),
    ):
        taken.check(connections=1)


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        ("1", True),
        ("4", True),
        ("100", True),
        ("101", False),
        ("0", False),
        ("-1", False),
        ("four", False),
        ("", False),
    ],
)
def test_as_many_connections_as_there_can_be(asked: str, taken: bool) -> None:
    """Up to that number each request has one of its own when it needs one."""
    flags = ContractFlags(api_connections=asked)
    if taken:
        flags.check(connections=100)
    else:
        with pytest.raises(Exit, match=r"--api-connections: .*--kube-api-writes-in-flight"):
            flags.check(connections=100)


def test_everything_else_is_refused_at_once_with_what_to_do() -> None:
    with pytest.raises(Exit) as raised:
        ContractFlags(webhook_port="9443", webhook_namespace="x", api_connections="8", zap_log_level="debug").check(
            connections=4
        )
    assert raised.value.code == USAGE
    said = str(raised.value)
    assert "--webhook-port, --webhook-namespace: there is no conversion webhook" in said
    assert "--api-connections: " in said
    assert "twice --kube-api-writes-in-flight" in said
    assert "--zap-log-level: use --log-format and --verbose" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--enable-webhook"], "--enable-webhook: there is no conversion webhook"),
        (["--enable-webhook=true"], "--enable-webhook: there is no conversion webhook"),
        (["--separate-watch-connection=false"], "--separate-watch-connection: watches always"),
        (["--sandbox-write-behind-window=200ms"], "--sandbox-write-behind-window: "),
        (["--enable-pprof-debug"], "use --debug-bind-address"),
    ],
)
def test_on_the_command_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["controller", "--kubeconfig", "/nowhere", *arguments]) == USAGE
    assert said in capsys.readouterr().err


def test_arguments_of_another_manifest_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    taken = ["--leader-elect=true", "--extensions=true", "--enable-webhook=false", "--disable-claim-events=true"]
    taken += ["--api-connections=4", "--separate-watch-connection", "--metrics-secure-serving=true"]
    taken += ["--tls-min-version=VersionTLS12", "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]
    assert run(["controller", "--kubeconfig", "/nowhere", *taken, "--cache-label-selectors"]) == 1
    assert "/nowhere: the kubeconfig is not there" in capsys.readouterr().err
