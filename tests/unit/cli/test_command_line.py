"""The command line as a whole: where flags may stand, what is said and where, which code goes with which error."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from sandpool.cli import console
from sandpool.cli.commands import COMMANDS
from sandpool.cli.console import Terminal
from sandpool.cli.error_messages import code_of, describe_error
from sandpool.cli.exits import FAILED, NOT_FOUND, OURS, TIMED_OUT, USAGE, Exit
from sandpool.cli.main import build, hoisted, run
from sandpool.cli.objects.top import ABSENT, Top
from sandpool.cli.sandbox.exec import ours
from sandpool.kube import errors as kube
from sandpool.sdk import errors as sdk
from sandpool.sdk.config import NO_ROUTER
from support.product.silent_console import Silent


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("get pools", "get pools"),
        ("-n red get pools", "get pools -n red"),
        ("--namespace=red --context c get pools", "get pools --namespace=red --context c"),
        ("-n red run python -- ls -n x", "run python -n red -- ls -n x"),
        ("--help", "--help"),
        ("-n", "-n"),
        ("", ""),
    ],
)
def test_flags_before_the_command(given: str, meant: str) -> None:
    assert hoisted(given.split()) == meant.split()


def test_every_command_can_be_loaded_and_explains_itself() -> None:
    app = build(["get"])
    for command in COMMANDS:
        found = app[command.name]
        assert found.help, command.name
        assert len(command.help) < 70, "one line in the overview"


@pytest.mark.parametrize("command", ["run", "exec"])
def test_a_command_without_its_dashes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "x", "ls", "-l"]) == USAGE
    assert "after --" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (kube.NotFound("x"), NOT_FOUND),
        (kube.Forbidden("x"), FAILED),
        (kube.Unreachable("x"), FAILED),
        (sdk.PoolNotFound("x"), NOT_FOUND),
        (sdk.SandboxNotFound("x"), NOT_FOUND),
        (sdk.NotConfigured("x"), NOT_FOUND),
        (sdk.ClaimTimeout("x"), TIMED_OUT),
        (sdk.TimedOut("x"), TIMED_OUT),
        (sdk.ClaimFailed("x"), FAILED),
    ],
)
def test_codes(error: Exception, code: int) -> None:
    assert code_of(error) == code


@pytest.mark.parametrize(
    ("arguments", "help_of"),
    [("nosuch", ""), ("claim", "claim "), ("pool nosuch", "pool "), ("pool create", "pool create "),
     ("pool rollout status", "pool rollout status ")],
)  # fmt: skip
def test_wrong_usage_names_the_help_to_read(arguments: str, help_of: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments.split()) == USAGE
    assert capsys.readouterr().err.endswith(f"sandpool: `sandpool {help_of}--help` shows how it is used\n")


@pytest.mark.parametrize("arguments", [["claim", ""], ["run", "", "--", "true"]])
def test_a_pool_without_a_name(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == USAGE
    assert capsys.readouterr().err == "sandpool: name a pool; `sandpool get pools` lists the existing ones\n"


def test_errors_end_with_what_to_do() -> None:
    answers = [kind for kind in vars(kube).values() if isinstance(kind, type) and kube.ApiError in kind.__bases__]
    kinds = [kind for kind in answers if kind.status in (400, 401, 403, 404, 409, 422, 429, 500, 503)]  # type: ignore[attr-defined]
    assert len(kinds) > 8
    for kind in kinds:
        assert describe_error(kind("something is wrong")).startswith("something is wrong. "), kind
    assert describe_error(kube.Unreachable("is it running?")).startswith("is it running? `sandpool status`")
    error = kube.Conflict("x")
    error.add_note("and a note")
    assert describe_error(error) == "x and a note. Somebody changed it meanwhile: try again"
    full = kube.Forbidden('pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1')
    assert describe_error(full).endswith(
        "limited: pods=1. Delete what is no longer needed, or ask the administrator of the cluster for a higher limit"
    )


@pytest.mark.parametrize(
    ("of_the_sdk", "of_the_command_line"),
    [
        ("not ready after 3 s; wait longer with timeout=", "not ready after 3 s; wait longer with --timeout"),
        ("choose another name, or use it with Sandbox.attach('box')", "choose another name, or use it with `sandpool exec box`"),
        (NO_ROUTER, "set SANDPOOL_ROUTER_URL to the address of its router"),
        ("with KUBECONFIG (or Config(kubeconfig=...))", "with KUBECONFIG or --kubeconfig"),
        ("set SANDPOOL_ROUTER_PLAIN=1 (or Config(router_plain=True)) where", "set SANDPOOL_ROUTER_PLAIN=1 where"),
    ],
)  # fmt: skip
def test_advice_about_arguments_becomes_advice_about_flags(of_the_sdk: str, of_the_command_line: str) -> None:
    assert describe_error(sdk.ClaimTimeout(of_the_sdk)) == of_the_command_line
    assert describe_error(kube.ConfigError(of_the_sdk)) == of_the_command_line


@pytest.mark.parametrize(
    ("code", "kept"), [(USAGE, True), (126, True), (127, True), (143, True), (3, False), (4, False)]
)
def test_what_is_ours_is_125(code: int, kept: bool) -> None:
    with pytest.raises(Exit) as ended, ours():
        raise Exit(code, "why")
    assert (ended.value.code, ended.value.message) == (code if kept else OURS, "why")


def test_words_of_servers_move_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().say("a\x1b[2Jb\nc")
    assert capsys.readouterr().err == "a [2Jb c\n"


def test_progress_is_talk_and_only_of_what_takes_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Terminal().progress("waiting"):
        pass
    assert capsys.readouterr() == ("", "")
    said = threading.Event()
    monkeypatch.setattr(console, "PATIENCE", 0.0)
    monkeypatch.setattr(Terminal, "say", lambda self, text: (print(text, file=sys.stderr), said.set()))
    with Terminal().progress("waiting"):
        assert said.wait(30)
    assert capsys.readouterr() == ("", "waiting\n")


@pytest.mark.parametrize(
    ("wish", "no_color", "coloured"), [("always", "1", True), ("never", "", False), ("auto", "", False)]
)
def test_colours(wish: Any, no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    assert Terminal(wish).color is coloured


class Unmeasured:
    """A cluster that measures nothing."""

    namespace = "default"

    def read(self, path: str) -> Any:
        raise kube.NotFound(f"there is no {path}")


def test_top_says_what_is_missing() -> None:
    words = Silent()
    with pytest.raises(Exit) as ended:
        Top().run(Unmeasured(), words)  # type: ignore[arg-type]
    assert (ended.value.code, ended.value.message, words.data) == (FAILED, ABSENT, "")
