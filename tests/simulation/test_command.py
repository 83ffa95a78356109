"""`sandpool simulate`: what it prints and how it ends."""

from __future__ import annotations

import json

import pytest

from sandpool.cli.main import run


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--seeds", "2", "--start", "1", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told.keys() == {"seeds", "steps", "faults", "never", "violations", "failing"}
    assert (told["seeds"], told["violations"], told["failing"]) == (2, 0, [])
    assert told["steps"] > 100


def test_text_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--seeds", "1", "--start", "7"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("seeds       1\n")
    assert told.endswith("violations  0\n")


def test_a_violation_fails_the_command_and_tells_a_story(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the surge limit, some of these seeds make more members than a pool may have."""
    code = run(["simulate", "--seeds", "8", "--mutation", "surge-limit", "-o", "json"])
    told = capsys.readouterr()
    failing = json.loads(told.out)["failing"]
    assert code == 1
    assert any("4: leader-" in violation for one in failing for violation in one["violations"])
    assert "Violated:" in told.err
    assert "What happened:" in told.err
    assert f"sandpool simulate --trace {failing[0]['seed']}" in told.err


def test_a_trace_shows_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--trace", "9"]) == 0
    trace = capsys.readouterr().out
    assert "user: creates sandboxwarmpool" in trace
    assert "leader-1 begins" in trace


def test_two_processes_find_what_one_finds(capsys: pytest.CaptureFixture[str]) -> None:
    answers = []
    for jobs in ("1", "2"):
        assert run(["simulate", "--seeds", "2", "--jobs", jobs, "-o", "json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--seeds", "0"], "at least 1"), (["--jobs", "0"], "at least 1"), (["--mutation", "x"], "use one of: uid-test")],
)
def test_wrong_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", *arguments]) == 2
    assert said in capsys.readouterr().err
