"""Which runsc is taken, and which is refused with what advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.gvisor.probe import ask_version, check_version, find_runsc, release_date
from sandpool.node.runtimes.gvisor.runtime import GvisorRuntime

HERE = Path("/opt/runsc")


def program(folder: Path, text: str) -> Path:
    path = folder / "runsc"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("version", "day"),
    [("release-20260905.0", 20260905), ("0.0~20221219.0", 20221219), ("VERSION_MISSING", None), ("120260905", None)],
)
def test_a_release_says_its_day(version: str, day: int | None) -> None:
    assert release_date(version) == day


@pytest.mark.parametrize("version", ["release-20240101.0", "release-20260905.0", "VERSION_MISSING"])
def test_a_recent_one_is_taken(version: str) -> None:
    assert check_version(HERE, f"runsc version {version}\nspec: 1.2.1\n").version == version


@pytest.mark.parametrize("version", ["0.0~20221219.0", "release-20231231.0"])
def test_an_old_one_is_refused_with_what_to_do(version: str) -> None:
    with pytest.raises(NodeError) as refused:
        check_version(HERE, f"runsc version {version}\n")
    assert refused.value.reason == "OldRunsc"
    assert version in refused.value.message
    assert "install a recent one" in refused.value.message


@pytest.mark.parametrize("said", ["", "runc version 1.1\n", "hello"])
def test_what_is_not_runsc_is_refused(said: str) -> None:
    with pytest.raises(NodeError, match="does not say what version"):
        check_version(HERE, said)


def test_one_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NodeError) as refused:
        find_runsc(tmp_path / "nowhere")
    assert (refused.value.reason, str(tmp_path / "nowhere") in refused.value.message) == ("NoRunsc", True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NodeError, match="runsc is not on PATH"):
        find_runsc(None)
    program(tmp_path, "true")
    assert find_runsc(None) == tmp_path / "runsc"


async def test_a_program_that_cannot_run_is_told(tmp_path: Path) -> None:
    path = tmp_path / "runsc"
    path.write_text("#!/nowhere/sh\n")
    path.chmod(0o755)
    with pytest.raises(NodeError, match="cannot be started"):
        await ask_version(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("echo runsc version 0.0~20221219.0", "OldRunsc"), ("echo hello", "NoRunsc"), ("exit 1", "NoRunsc")],
)
async def test_the_probe_says_why_and_what_to_do(text: str, reason: str, tmp_path: Path) -> None:
    probe = await GvisorRuntime(tmp_path / "state", installation="unit", runsc=program(tmp_path, text)).probe()
    assert (probe.available, probe.reason) == (False, reason)
    assert "install a recent one" in probe.message


async def test_the_variable_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDPOOL_RUNSC", str(tmp_path / "elsewhere"))
    probe = await GvisorRuntime(tmp_path / "state", installation="unit").probe()
    assert (probe.reason, str(tmp_path / "elsewhere") in probe.message) == ("NoRunsc", True)
