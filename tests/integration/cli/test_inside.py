"""Commands that reach into sandboxes: a real cluster, isolated processes, the router between them."""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.node.own_terminal import on_a_terminal
from support.product.cluster import COMMAND, Cluster, running_cluster, sandpool_bytes
from support.product.cluster import sandpool as command

# It listens on loopback only, says how many bytes it was sent until the other side had said all, and that is all.
COUNTER = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    client, _ = server.accept()
    count = 0
    while data := client.recv(65536):
        count += len(data)
    client.sendall(b"%d\\n" % count)
    client.close()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("inside") / "data"
    with running_cluster(folder, "--backend", "namespaces", "--pool", "python=2") as found:
        command("pool", "rollout", "status", "python", *found.flag)
        yield found


@pytest.fixture(scope="module")
def claim(cluster: Cluster) -> str:
    return command("claim", "python", *cluster.flag).stdout.strip()


@pytest.fixture
def env(cluster: Cluster) -> dict[str, str]:
    return {**os.environ, "SANDPOOL_DATA_DIR": str(cluster.data_dir)}


def sandpool(env: dict[str, str], *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return sandpool_bytes(*arguments, env=env, **options)


def test_run_is_as_if_it_ran_here(env: dict[str, str]) -> None:
    done = sandpool(env, "run", "python", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    assert sandpool(env, "run", "python", "--", "tr", "a-z", "A-Z", input=b"hello").stdout == b"HELLO"
    done = sandpool(env, "run", "python", "-e", "A=x y", "--cwd", "/tmp", "--", "sh", "-c", 'echo "$A"; pwd')
    assert done.stdout == b"x y\n/tmp\n"
    assert json.loads(sandpool(env, "get", "claims", "-l", "none=such", "-o", "json").stdout)["items"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("run", "python", "--", "no-such-program"), 127, b"sh -c"),
        (("run", "python", "--", "/etc"), 126, b"chmod"),
        (("run", "python", "--time-limit", "200ms", "--", "sleep", "60"), 124, b"--time-limit"),
        (
            ("run", "python", "--cwd", "/no/such", "--", "true"),
            127,
            b"cwd: '/no/such' does not exist; name a directory",
        ),
        (("run", "nowhere", "--", "true"), 125, b"sandpool get pools"),
        (("run", "python"), 2, b"after --"),
        (("run", "python", "--no-stdin", "-t", "--", "true"), 2, b"contradicts"),
        (("run", "python", "--env", "A", "--", "true"), 2, b"KEY=VALUE"),
    ],
)
def test_what_is_not_the_commands_own_end(
    env: dict[str, str], arguments: tuple[str, ...], code: int, words: bytes
) -> None:
    done = sandpool(env, *arguments)
    assert (done.returncode, done.stdout) == (code, b""), done
    assert words in done.stderr


def test_every_run_gives_its_sandbox_back(env: dict[str, str]) -> None:
    before = sandpool(env, "get", "claims", "-o", "name").stdout
    for end in (("true",), ("false",), ("no-such-program",)):
        sandpool(env, "run", "python", "--", *end)
    assert sandpool(env, "get", "claims", "-o", "name").stdout == before


def test_much_goes_both_ways_at_once(env: dict[str, str], claim: str) -> None:
    """More than any buffer holds: neither direction may wait for the other."""
    data = os.urandom(8 << 20)
    done = sandpool(env, "exec", claim, "--", "cat", input=data)
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


def test_input_that_nobody_reads_holds_nothing_up(env: dict[str, str], claim: str) -> None:
    done = sandpool(env, "exec", claim, "--", "sh", "-c", "exec <&-; echo done; exit 3", input=bytes(4 << 20))
    assert (done.returncode, done.stdout) == (3, b"done\n")


@pytest.mark.parametrize("piped", [False, True])
def test_signals_reach_the_program(env: dict[str, str], claim: str, piped: bool) -> None:
    """Also while input waits that the program does not read."""
    script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done"
    read, write = os.pipe()
    try:
        with subprocess.Popen(
            [*COMMAND, "exec", claim, "--", "sh", "-c", script],
            stdin=read if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=env,
        ) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == b"ready\n"
            if piped:
                fill(write)
            running.send_signal(signal.SIGINT)
            assert running.stdout.read() == b"caught\n"
            assert running.wait(60) == 9
    finally:
        os.close(read)
        os.close(write)


def fill(pipe: int) -> None:
    """Until everything on the way is full: what is taken out of the pipe afterwards is nothing."""
    os.set_blocking(pipe, False)
    while select.select([], [pipe], [], 0.5)[1]:
        try:
            os.write(pipe, bytes(65536))
        except BlockingIOError:
            pass


def test_who_is_told_to_stop_gives_the_sandbox_back(env: dict[str, str]) -> None:
    before = sandpool(env, "get", "claims", "-o", "name").stdout
    with subprocess.Popen(
        [*COMMAND, "run", "python", "--", "sh", "-c", "echo ready; exec sleep 600"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=env,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 128 + signal.SIGTERM
    assert sandpool(env, "get", "claims", "-o", "name").stdout == before


def test_a_reader_that_has_seen_enough_ends_the_program(env: dict[str, str], claim: str) -> None:
    with subprocess.Popen(
        [*COMMAND, "exec", claim, "--", "yes"], stdout=subprocess.PIPE, env=env, stdin=subprocess.DEVNULL
    ) as running:
        assert running.stdout is not None
        assert running.stdout.read(4) == b"y\ny\n"
        running.stdout.close()
        assert running.wait(60) == 128 + signal.SIGPIPE
    left = sandpool(env, "exec", claim, "--", "sh", "-c", "while pgrep -x yes; do sleep 0.05; done; echo none").stdout
    assert left.endswith(b"none\n")


def test_sandboxes_by_their_own_name(env: dict[str, str], claim: str) -> None:
    name = sandpool(env, "get", "claim", claim, "-o", "jsonpath={.status.sandbox.name}").stdout.decode()
    assert sandpool(env, "exec", f"sandbox/{name}", "--", "echo", "here").stdout == b"here\n"


def test_files_and_trees_both_ways(env: dict[str, str], claim: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "file").write_bytes(os.urandom(200_000))
    (tree / "script").write_text("#!/bin/sh\necho ran\n")
    (tree / "script").chmod(0o755)
    assert sandpool(env, "cp", str(tree), f"{claim}:new").returncode == 0
    assert sandpool(env, "exec", claim, "--", "new/script").stdout == b"ran\n"
    assert sandpool(env, "cp", str(tree), f"{claim}:new").returncode == 0  # it is a folder now: into it
    assert sandpool(env, "exec", claim, "--", "ls", "new").stdout.split() == [b"deep", b"script", b"tree"]
    assert sandpool(env, "cp", f"{claim}:new/tree", str(tmp_path / "back")).returncode == 0
    assert (tmp_path / "back/deep/file").read_bytes() == (tree / "deep/file").read_bytes()
    assert os.access(tmp_path / "back/script", os.X_OK)
    assert sandpool(env, "cp", f"{claim}:new/script", str(tmp_path)).returncode == 0
    assert (tmp_path / "script").read_text() == (tree / "script").read_text()
    assert sandpool(env, "cp", f"{claim}:new/.", str(tmp_path / "contents")).returncode == 0
    assert sorted(os.listdir(tmp_path / "contents")) == ["deep", "script", "tree"]


def test_files_by_pipes(env: dict[str, str], claim: str) -> None:
    data = os.urandom(300_000)
    assert sandpool(env, "cp", "-", f"{claim}:piped", input=data).returncode == 0
    assert sandpool(env, "cp", f"{claim}:piped", "-").stdout == data
    refused = sandpool(env, "cp", f"{claim}:piped", "-", "--max-size", "1Ki")
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert b"more than 1024 bytes; raise --max-size" in refused.stderr
    assert sandpool(env, "cp", "-", f"{claim}:piped", "--max-size", "1Ki", input=b"").returncode == 2


@pytest.mark.parametrize(
    ("source", "target", "code"), [("CLAIM:/no/such", ".", 3), ("/etc/hostname", "CLAIM:/etc/x", 1)]
)
def test_files_that_cannot_be_copied(env: dict[str, str], claim: str, source: str, target: str, code: int) -> None:
    done = sandpool(env, "cp", source.replace("CLAIM", claim), target.replace("CLAIM", claim))
    assert done.returncode == code, done
    assert b"Traceback" not in done.stderr


def test_logs_are_of_the_first_process(env: dict[str, str]) -> None:
    script = "for i in 1 2 3; do echo line $i; done; exec sleep infinity"
    made = sandpool(env, "pool", "create", "talker", "--image", "host", "--", "sh", "-c", script)
    assert made.returncode == 0, made.stderr
    claimed = sandpool(env, "claim", "talker", "--name", "talks")
    assert claimed.returncode == 0, claimed.stderr
    assert sandpool(env, "logs", "talks").stdout == b"line 1\nline 2\nline 3\n"
    assert sandpool(env, "logs", "talks", "--tail", "1").stdout == b"line 3\n"
    with subprocess.Popen([*COMMAND, "logs", "-f", "talks"], stdout=subprocess.PIPE, env=env) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"line 1\n"
        following.send_signal(signal.SIGINT)
        following.communicate(timeout=60)
    assert following.returncode == 130
    sandpool(env, "pool", "scale", "talker", "0")
    assert sandpool(env, "release", "talks").stdout == b"talks\n"


def test_ports_come_here(env: dict[str, str], claim: str) -> None:
    listening = subprocess.Popen(
        [*COMMAND, "exec", claim, "--", "python3", "-c", COUNTER],
        stdout=subprocess.PIPE,
        env=env,
        stdin=subprocess.DEVNULL,
    )
    forwarding = None
    try:
        assert listening.stdout is not None
        remote = listening.stdout.readline().decode().strip()
        forwarding = subprocess.Popen(
            [*COMMAND, "port-forward", claim, f":{remote}", ":1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )
        assert forwarding.stdout is not None
        good, empty = (forwarding.stdout.readline().decode().strip().split(":") for _ in range(2))
        for size in (0, 5, 3_000_000):
            with socket.create_connection((good[0], int(good[1])), timeout=60) as client:
                client.sendall(bytes(size))
                client.shutdown(socket.SHUT_WR)
                assert client.makefile().readline() == f"{size}\n"
        with socket.create_connection((empty[0], int(empty[1])), timeout=60) as client:
            assert client.recv(1) == b""  # nobody listens there
        forwarding.send_signal(signal.SIGINT)
        _, said = forwarding.communicate(timeout=60)
        assert forwarding.returncode == 130
        assert b"is something listening" in said
    finally:
        for process in (listening, forwarding):
            if process is not None:
                process.terminate()
                process.communicate(timeout=60)


def test_top(env: dict[str, str], claim: str) -> None:
    found = json.loads(sandpool(env, "top", "-o", "json").stdout)
    assert claim in {one["claim"] for one in found}
    assert all(one["memory_bytes"] > 0 for one in found)


def test_a_shell_on_a_terminal(env: dict[str, str], claim: str) -> None:
    with on_a_terminal([*COMMAND, "shell", claim], {**env, "TERM": "xterm"}, 100, 40) as terminal:
        before = terminal.modes
        terminal.type("stty size; echo $TERM-$((6*7))\n")
        assert "40 100" in terminal.until("xterm-42")
        assert terminal.modes != before, "every key goes through as it is"
        terminal.resize(120, 50)
        terminal.type("until [ \"$(stty size)\" = '50 120' ]; do sleep 0.05; done; echo re''sized\n")
        terminal.until("resized")
        # Said by the program itself: what the shell says before it could come before the program is in front of the terminal.
        terminal.type("sh -c 'echo sta\"\"rted; exec sleep 600'; echo not-''reached\n")
        terminal.until("started")
        terminal.type("\x03")
        terminal.until("^C")
        terminal.until("$ ")
        terminal.type("echo inter''rupted\n")
        assert "not-reached" not in terminal.until("interrupted")
        terminal.type("exit 5\n")
        assert terminal.ended() == 5
        assert terminal.modes == before, "the terminal is as it was"


def test_a_terminal_is_as_it_was_also_when_the_sandbox_goes(env: dict[str, str]) -> None:
    name = sandpool(env, "claim", "python").stdout.decode().strip()
    with on_a_terminal([*COMMAND, "exec", "-it", name, "--", "sh"], env) as terminal:
        before = terminal.modes
        terminal.type("echo he''re\n")
        terminal.until("here")
        assert sandpool(env, "release", name).returncode == 0
        assert terminal.ended() in (125, 129, 137, 143)
        assert terminal.modes == before


def test_without_a_terminal_a_shell_reads_lines(env: dict[str, str], claim: str) -> None:
    done = sandpool(env, "shell", claim, input=b"echo $((6*7)); exit 5\n")
    assert (done.returncode, done.stdout) == (5, b"42\n")
    assert b"not a terminal" in done.stderr


def test_a_suspended_sandbox_says_how_to_go_on(env: dict[str, str]) -> None:
    name = sandpool(env, "claim", "python").stdout.decode().strip()
    assert sandpool(env, "suspend", name).returncode == 0
    refused = sandpool(env, "exec", name, "--", "true")
    assert refused.returncode == 125
    assert b"resume" in refused.stderr
    assert sandpool(env, "resume", name).returncode == 0
    assert sandpool(env, "exec", name, "--", "echo", "back").stdout == b"back\n"
    assert sandpool(env, "release", name).returncode == 0
