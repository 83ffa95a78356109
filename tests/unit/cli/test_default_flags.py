from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.app.controllers import ControllerOptions
from sandpool.cli.default_flags import DefaultFlags
from sandpool.cli.exits import USAGE
from sandpool.cli.main import run
from sandpool.model.container_defaults import NONE, STANDARD, ContainerDefaults, amounts


def test_what_is_not_said_is_what_controllers_have_anyway() -> None:
    assert DefaultFlags().defaults() == STANDARD == ControllerOptions().defaults
    assert DefaultFlags(default_limits="", default_requests="").defaults() == NONE
    chosen = DefaultFlags(default_limits="memory=1Gi", default_requests="memory=1Mi")
    assert chosen.defaults() == ContainerDefaults(amounts("memory=1Gi"), amounts("memory=1Mi"))
    assert chosen.arguments() == ["--default-limits=memory=1Gi", "--default-requests=memory=1Mi"]


@pytest.mark.parametrize("command", ["up", "controller"])
@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--default-limits=cpu=lots", "--default-limits: cpu: 'lots' is not an amount; write for example cpu=2,"),
        ("--default-limits=gpu=1", "--default-limits: 'gpu' is none of cpu, memory, ephemeral-storage; write"),
        (
            "--default-requests=memory",
            "--default-requests: memory: say it once, with an amount; write for example cpu=",
        ),
        (
            "--default-limits=memory=64Mi",
            "--default-requests: memory: the request 128Mi is above the limit 64Mi of --default-limits",
        ),
    ],
)
def test_mistakes(
    command: str,
    argument: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SANDPOOL_DATA_DIR", str(tmp_path / "data"))
    assert run([command, argument]) == USAGE
    assert said in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
