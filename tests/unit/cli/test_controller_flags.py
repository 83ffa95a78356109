from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from sandpool.cli.controller_flags import LeadFlags, MemberFlags, PaceFlags, SeenFlags, WhereFlags
from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.main import run
from sandpool.cli.units import duration
from sandpool.loop.lease import Terms
from sandpool.telemetry.pages import Address

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5m", 300.0), ("90s", 90.0), ("1h30m", 5400.0), ("500ms", 0.5), ("1.5s", 1.5), ("7", 7.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text, "--x") == seconds


@pytest.mark.parametrize("text", ["", "5 m", "m", "-5s", "5d", "1h-5m", "0s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(Exit, match="--x") as raised:
        duration(text, "--x")
    assert raised.value.code == USAGE


def test_defaults_are_those_of_the_contract() -> None:
    assert LeadFlags().terms() == Terms() == Terms(duration=8, renew=6.5, retry=1)
    assert PaceFlags().rate().qps == 0  # no limit
    assert MemberFlags().pool().batch == 300
    assert MemberFlags().pool().readiness_grace == 300
    assert WhereFlags().namespaces() == ()


def test_addresses_are_for_others_only_in_a_pod() -> None:
    assert SeenFlags().addresses({}) == (Address("127.0.0.1", 8080), Address("127.0.0.1", 8081), None)
    assert SeenFlags().addresses(IN_A_POD) == (Address("", 8080), Address("", 8081), None)
    asked = SeenFlags(metrics_bind_address="0", health_probe_bind_address=":1", debug_bind_address=":6060")
    assert asked.addresses(IN_A_POD) == (None, Address("", 1), Address("127.0.0.1", 6060))


def test_namespaces_are_a_list_without_doubles() -> None:
    assert WhereFlags(watch_namespaces="a, b,a,").namespaces() == ("a", "b")


def test_label_domains_come_from_the_flag_else_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "domains"
    assert MemberFlags().label_domains(file) == ()
    file.write_text("Example.com,\n other.io\n")
    assert MemberFlags().label_domains(file) == ("example.com", "other.io")
    assert MemberFlags(allowed_label_domains="mine.io").label_domains(file) == ("mine.io",)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--sandbox-claim-concurrent-workers=0"], "--sandbox-claim-concurrent-workers must be at least 1"),
        (["--kube-api-burst=0"], "--kube-api-burst must be at least 1"),
        (["--kube-api-qps=nan"], "--kube-api-qps"),
        (["--sandbox-warm-pool-max-batch-size=0"], "--sandbox-warm-pool-max-batch-size"),
        (["--sandbox-warm-pool-max-refill-rate=-1"], "--sandbox-warm-pool-max-refill-rate"),
        (["--sandbox-warm-pool-readiness-grace-period=0s"], "--sandbox-warm-pool-readiness-grace-period"),
        (["--leader-election-lease-duration=1s"], "--leader-election-lease-duration must be at least 3s"),
        (["--watch-namespaces=A_b"], "--watch-namespaces: 'A_b' cannot be the name of a namespace"),
        (["--metrics-bind-address=x"], "--metrics-bind-address 'x' is not an address"),
        (["--no-such-flag"], "--no-such-flag"),
    ],
)
def test_wrong_flags_are_told_and_nothing_starts(
    flags: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["controller", *flags]) == USAGE
    assert named in " ".join(capsys.readouterr().err.split()).replace("│ ", "")


def test_flags_as_other_manifests_write_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They get as far as the kubeconfig that is not there."""
    absent = tmp_path / "absent"
    flags = ["--leader-elect=true", "--extensions=true", "--kube-api-qps=-1.0", f"--kubeconfig={absent}"]
    assert run(["controller", *flags]) == 1
    assert str(absent) in capsys.readouterr().err


GROUPS = (WhereFlags, LeadFlags, PaceFlags, MemberFlags, SeenFlags)
FLAGS = [f"--{each.name.replace('_', '-')}" for group in GROUPS for each in fields(group)]


def test_help_names_every_flag() -> None:
    wide = os.environ | {"COLUMNS": "250"}  # long names are broken otherwise
    command = [sys.executable, "-m", "sandpool", "controller", "--help"]
    shown = subprocess.run(command, env=wide, capture_output=True, text=True, check=True, timeout=60).stdout
    assert [flag for flag in FLAGS if flag not in shown] == []
    assert "--webhook" not in shown  # those of others are in the reference


def test_the_reference_names_every_flag() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/command-line.md").read_text()
    assert [flag for flag in FLAGS if f"| `{flag}" not in page] == []


def test_stories_are_told_on_loopback_only() -> None:
    assert SeenFlags().stories_address() == Address("127.0.0.1", 8082)
    assert SeenFlags(stories_bind_address=":1").stories_address() == Address("127.0.0.1", 1)
    assert SeenFlags(stories_bind_address="[::1]:1").stories_address() == Address("::1", 1)
    assert SeenFlags(stories_bind_address="0").stories_address() is None
    for address in ("0.0.0.0:8082", "10.0.0.1:8082", "[::]:8082", "example.com:8082"):
        with pytest.raises(Exit, match="only on loopback") as raised:
            SeenFlags(stories_bind_address=address).stories_address()
        assert raised.value.code == USAGE


def test_the_router_is_somewhere() -> None:
    assert WhereFlags().router() == ""
    assert WhereFlags(router_namespace="edge").router() == "edge"
    with pytest.raises(Exit, match="--router-namespace"):
        WhereFlags(router_namespace="Not A Name").router()
