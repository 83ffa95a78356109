"""From what runsc says to what a pod's status says; and what is believed of it."""

from __future__ import annotations

import json

import pytest

from sandpool.node.runtimes.contract import Ended
from sandpool.node.runtimes.gvisor.container import as_ended, exit_status, first_process, process_tree
from sandpool.node.runtimes.gvisor.forked.command import dial_error, last_log_entry, runsc_error, start_error
from sandpool.node.runtimes.gvisor.probe import enforcement_note, judge
from sandpool.node.runtimes.gvisor.sandbox import lost_by, used_memory


def log(message: str) -> str:
    return json.dumps({"who": {}}) + json.dumps({"msg": message, "level": "error"})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('error finding executable "x" in PATH [/bin]: no such file or directory', "no such file or directory: 'x'"),
        ("failed to load /x: permission denied", "permission denied: 'x' is not executable"),
        ("failed to load /x: exec format error", "exec format error: 'x' is no program for this machine"),
        ('stat "/nowhere": no such file or directory', "cannot enter the working directory '/nowhere'"),
    ],
)
def test_a_command_that_cannot_start_is_told_as_a_shell_would(said: str, words: str) -> None:
    reason, message = start_error(128, log(said), ["x"], "/nowhere")
    assert (reason, words in message) == ("StartError", True)


def test_other_failures_are_told_as_they_are() -> None:
    assert start_error(128, log("the sky fell"), ["x"]) == ["CreateContainerError", "the sky fell"]
    assert start_error(125, json.dumps({"refused": ["InvalidPath", "no"]}), ["x"]) == ["InvalidPath", "no"]
    assert runsc_error(3, "") == ["Gvisor", "runsc ended with code 3 and said nothing"]
    assert dial_error(80, 128, log("connection was refused")) == [
        "ConnectionRefused",
        "nobody listens on port 80 of the sandbox",
    ]
    assert "unreachable" in dial_error(80, 128, log("network is unreachable"))[1]


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", '{"msg": "a"}garbage', "{" * 5000])
def test_a_log_may_hold_anything(text: str) -> None:
    assert last_log_entry(text) in ({}, {"msg": "a"})


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        (0, Ended(0)),
        (7, Ended(7)),
        (128, Ended(128)),
        (143, Ended(143, 15)),
        (137, Ended(137, 9, True)),
        (255, Ended(255)),
    ],
)
def test_an_end(code: int, ended: Ended) -> None:
    assert as_ended(code, oom=True) == ended


@pytest.mark.parametrize("code", [None, -1, 256, True, "7", 1e9])
def test_an_end_that_makes_no_sense(code: object) -> None:
    assert as_ended(code).code == 137


@pytest.mark.parametrize("said", ["", "[]", "null", "{}", "7"])
def test_no_exit_status(said: str) -> None:
    assert exit_status(said) is None


def test_an_exit_status() -> None:
    assert exit_status('{"id":"c","exitStatus":7}') == 7


TABLE = """UID       PID       PPID      PGID      C         TTY       STIME     TIME      CMD
0         2         0         2         2         ?         15:52     10ms      sleep
0         3         0         3         8         ?         15:52     30ms      sh
0         4         3         3         8         ?         15:52     10ms      sleep
0         5         4         5         6         ?         15:52     10ms      9 9 9
0         6         2         3         6         ?         15:52     10ms      orphan
"""


def test_a_family_is_a_group_and_what_descends_from_it() -> None:
    assert process_tree(TABLE, 3) == [3, 4, 5, 6]
    assert process_tree(TABLE, 5) == [5]
    assert process_tree(TABLE, 77) == []
    assert process_tree("nonsense\n1 2\n", 2) == []
    assert (first_process(TABLE), first_process("")) == (2, 0)


def test_why_a_sandbox_was_lost() -> None:
    assert "memory" in lost_by(oom=True, pids=True)
    assert "processes" in lost_by(oom=False, pids=True)
    assert "outside" in lost_by(oom=False, pids=False)


@pytest.mark.parametrize(
    "said", ["", "{}", '{"data": {"memory": 5}}', '{"data": {"memory": {"usage": {"usage": "x"}}}}']
)
def test_no_memory_is_counted_from_nonsense(said: str) -> None:
    assert used_memory(said) == 0


GOOD = "self 1\nstatus CapBnd: 0000000000000000\nnet lo: 0 0\nversion Linux version 4.4.0\n"
LIMITED = frozenset({"memory", "cpu", "pids"})


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        (GOOD, set()),
        (GOOD.replace("4.4.0", "6.18"), {"kernel"}),
        (GOOD + "net eth0: 0\n", {"network"}),
        (GOOD + "saw outside\n", {"filesystem"}),
        (GOOD.replace("self 1", "self 4711"), {"processes"}),
        (GOOD.replace("bnd", "bnd").replace("0000000000000000", "00000000a80425fb"), {"capabilities"}),
        (GOOD + "stored\n", {"storage"}),
        ("", {"kernel", "network", "filesystem", "processes", "capabilities", "storage"}),
    ],
)
def test_what_a_probe_finds_enforced(said: str, missing: set[str]) -> None:
    everything = {"kernel", "filesystem", "network", "processes", "capabilities", "storage", *LIMITED}
    assert judge(said, "Linux version 6.18", LIMITED) == everything - missing


def test_what_is_not_enforced_is_told() -> None:
    assert enforcement_note(LIMITED | {"storage", "io"}) == ""
    assert enforcement_note(LIMITED | {"storage"}) == (
        "this machine does not enforce: io; disk bandwidth is shared, and --io-limit bounds that of each pod"
    )
    assert "memory, cpu, pids" in enforcement_note(frozenset({"storage"}))
    assert "Run as root" in enforcement_note(frozenset({"storage"}))
