"""What `sandpool up` is told about how much tenants may hold together."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.cli.exits import USAGE
from sandpool.cli.main import run
from sandpool.cli.up import ShareFlags
from sandpool.controlplane.objects.holdings import HoldingLimits


def test_what_is_not_said_is_what_objects_have_anyway() -> None:
    assert ShareFlags().limits() == HoldingLimits()
    chosen = ShareFlags(max_sandboxes=5, max_objects=7, max_stored_bytes="2Gi")
    assert chosen.limits() == HoldingLimits(sandboxes=5, objects=7, size=2 << 30)
    held = ["--max-sandboxes=5", "--max-objects=7", "--max-stored-bytes=2Gi"]
    assert chosen.arguments() == [*held, "--max-waiting-claims=10000", "--max-wait=60"]


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--max-sandboxes=0", "--max-sandboxes 0: choose a number from 1 to 1000000000"),
        ("--max-objects=-3", "--max-objects -3: choose a number from 1 to"),
        ("--max-stored-bytes=lots", "--max-stored-bytes lots: write an amount from 1Mi to 1Ti, such as 256Mi"),
        ("--max-stored-bytes=100", "--max-stored-bytes 100: write an amount from 1Mi to 1Ti"),
        ("--max-stored-bytes=2Ti", "--max-stored-bytes 2Ti: write an amount"),
    ],
)
def test_mistakes(
    argument: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SANDPOOL_DATA_DIR", str(tmp_path / "data"))
    assert run(["up", argument]) == USAGE
    assert said in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
