"""Processes through a real boxd: streams, ends, signals, time limits, and coming back."""

from __future__ import annotations

import base64
import json
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandpool.wire.frames import CONTENT_TYPE, Frames, Kind
from support.network.boxd_daemon import TOKEN, Attachment, Daemon, gone, told


def test_output_input_and_exit_code(box: Daemon) -> None:
    run = box.run(shell="cat; echo oops >&2; exit 3", stdin=base64.b64encode(b"\x00\xffhi").decode())
    assert (run.stdout, run.stderr, run.exit) == (b"\x00\xffhi", b"oops\n", {"code": 3, "signal": 0, "timedOut": False})


def test_argv_is_run_as_it_is(box: Daemon) -> None:
    assert box.run(argv=["printf", "%s|", "a b", "$HOME"]).stdout == b"a b|$HOME|"


def test_environment_and_folder(box: Daemon) -> None:
    (box.root / "sub").mkdir()
    run = box.run(shell="pwd; echo $A; env", env={"A": "b c"}, cwd="sub")
    assert run.stdout.startswith(f"{box.root}/sub\nb c\n".encode())
    assert TOKEN.encode() not in run.stdout, "the token is for clients alone"


def test_a_signal_is_told(box: Daemon) -> None:
    assert box.run(shell="kill -9 $$").exit == {"code": 137, "signal": 9, "timedOut": False}


def test_a_time_limit_ends_the_whole_group_and_keeps_what_was_said(box: Daemon) -> None:
    run = box.run(shell="echo before; sleep 1000 & echo $!; wait", timeout=0.5)
    words = run.stdout.split()
    assert (words[0], run.exit["timedOut"]) == (b"before", True)
    assert gone(int(words[1]))


LEAVING = {
    "child": "setsid sh -c 'echo $$; exec sleep 1000' & wait",
    "orphan": "(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000",
    "grandchildren": "setsid sh -c 'setsid sh -c \"echo \\$\\$; exec sleep 1000\" & wait' & wait",
    "without variables": "env -i setsid sh -c 'echo $$; exec sleep 1000' & wait",
}
"""Each says the number of a process that is in another session than the command, and goes on."""


@pytest.mark.parametrize("how", LEAVING)
def test_what_has_left_the_group_ends_with_the_command(box: Daemon, how: str) -> None:
    process = box.start(shell=LEAVING[how])
    with _attached(box, process["id"]) as attachment:
        left = int(attachment.until(b"\n"))
    assert box.ask("DELETE", f"/box/v1/processes/{process['id']}").status == 204
    assert gone(left)


def test_what_has_left_the_group_ends_at_a_time_limit(box: Daemon) -> None:
    run = box.run(shell=LEAVING["orphan"], timeout=2)
    assert run.exit["timedOut"]
    assert gone(int(run.stdout))


def test_what_has_left_the_group_ends_with_the_connection(box: Daemon) -> None:
    spec = json.dumps({"shell": LEAVING["orphan"]})
    with socket.create_connection(("127.0.0.1", box.port), timeout=60) as connection:
        head = f"POST /box/v1/processes HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nAccept: {CONTENT_TYPE}"
        connection.sendall(f"{head}\r\nContent-Length: {len(spec)}\r\n\r\n{spec}".encode())
        left = _first_number(connection)
    assert gone(left)


def test_what_others_have_started_goes_on(box: Daemon) -> None:
    daemon = int(box.run(shell="echo $(setsid sh -c 'echo $$; exec sleep 1000 >&- 2>&-' &)").stdout)
    other = box.start(shell="echo $$; exec sleep 1000")
    assert box.run(shell="setsid sleep 1000 & wait", timeout=0.2).exit["timedOut"]
    assert Path(f"/proc/{daemon}").exists()
    assert box.state(other["id"])["running"]
    os.kill(daemon, 9)


def _first_number(connection: socket.socket) -> int:
    """That a command says whose output comes over a raw connection."""
    frames = Frames()
    with connection.makefile("rb") as file:
        while file.readline() != b"\r\n":
            pass
        said = b""
        while b"\n" not in said:
            size = int(file.readline(), 16)
            for frame in frames.feed(file.read(size)):
                said += frame.data if frame.kind is Kind.STDOUT else b""
            file.read(2)
    return int(said)


@contextmanager
def _attached(box: Daemon, id: str) -> Iterator[Attachment]:
    found = box.attach(id)
    try:
        yield found
    finally:
        found.close()


def test_a_background_child_that_holds_the_pipe_holds_nobody_up(box: Daemon) -> None:
    run = box.run(shell="sleep 1000 & echo $!")
    os.kill(int(run.stdout), 9)
    assert run.exit["code"] == 0


@pytest.mark.parametrize(
    ("spec", "status", "code"),
    [
        ({"argv": ["/no/such"]}, 404, "COMMAND_NOT_FOUND"),
        ({"argv": ["no-such-program"]}, 404, "COMMAND_NOT_FOUND"),
        ({"argv": ["/etc/passwd"]}, 403, "PERMISSION_DENIED"),
        ({"shell": "true", "cwd": "missing"}, 404, "NOT_FOUND"),
        ({"shell": "true", "cwd": "../.."}, 403, "PERMISSION_DENIED"),
        ({"shell": "true", "argv": ["true"]}, 400, "INVALID_ARGUMENT"),
        ({}, 400, "INVALID_ARGUMENT"),
        ({"argv": []}, 400, "INVALID_ARGUMENT"),
        ({"shell": "tr\0ue"}, 400, "INVALID_ARGUMENT"),
        ({"shell": "true", "env": {"A=B": "c"}}, 400, "INVALID_ARGUMENT"),
        ({"shell": "true", "timeout": -1}, 400, "INVALID_ARGUMENT"),
        ({"shell": "true", "stdin": "not base64"}, 400, "INVALID_ARGUMENT"),
        ({"shell": "true", "colour": "green"}, 400, "INVALID_ARGUMENT"),
    ],
)
def test_what_cannot_be_run_says_why(box: Daemon, spec: dict[str, object], status: int, code: str) -> None:
    answer = box.ask("POST", "/box/v1/processes", json.dumps(spec), {"Accept": CONTENT_TYPE})
    assert (answer.status, answer.value["code"]) == (status, code)
    assert answer.value["message"]


def test_much_output_arrives_whole(box: Daemon) -> None:
    run = box.run(argv=["head", "-c", "50000000", "/dev/zero"], keep=65_536)
    assert len(run.stdout) == 50_000_000
    assert run.lost == 0


def test_a_slow_reader_slows_the_process_and_not_the_daemon(box: Daemon) -> None:
    """The reader takes nothing at first: the process must wait, and memory must not grow with what it would like to say."""
    body = json.dumps({"argv": ["head", "-c", "100000000", "/dev/zero"], "keep": 65_536}).encode()
    head = f"POST /box/v1/processes HTTP/1.1\r\nAccept: {CONTENT_TYPE}\r\nContent-Length: {len(body)}"
    connection = box.open(head)
    connection.sendall(body)
    assert connection.recv(1)
    for _ in range(50):
        assert box.run(argv=["true"]).exit["code"] == 0
    (listed,) = (p for p in box.ask("GET", "/box/v1/processes").value["processes"] if p["argv"][0] == "head")
    assert listed["running"]
    assert listed["output"]["end"] < 50_000_000
    connection.close()
    assert gone(listed["pid"]), "nobody listens any more"


def test_a_client_that_hangs_up_takes_its_process_with_it(box: Daemon) -> None:
    body = json.dumps({"shell": "echo $$; sleep 1000"}).encode()
    connection = box.open(f"POST /box/v1/processes HTTP/1.1\r\nAccept: {CONTENT_TYPE}\r\nContent-Length: {len(body)}")
    connection.sendall(body)
    said = b""
    while said.count(b"\x02\0\0\0") < 1:
        said += connection.recv(4096)
    (listed,) = box.ask("GET", "/box/v1/processes").value["processes"]
    connection.close()
    assert gone(listed["pid"])


def test_a_detached_process_is_listed_and_can_be_come_back_to(box: Daemon) -> None:
    process = box.start(shell="echo one; read line; echo got $line; exit 7", stdin=True)
    assert [p["id"] for p in box.ask("GET", "/box/v1/processes").value["processes"]] == [process["id"]]
    assert box.tell(process["id"], "stdin?eof", b"two\n").status == 204
    run = told(box.output(process["id"]))
    assert (run.stdout, run.exit["code"]) == (b"one\ngot two\n", 7)
    assert told(box.output(process["id"], "from=4")).stdout == b"got two\n"
    assert box.state(process["id"])["exit"]["code"] == 7
    assert box.ask("DELETE", f"/box/v1/processes/{process['id']}").status == 204
    assert box.ask("GET", f"/box/v1/processes/{process['id']}").status == 404


def test_only_recent_output_is_kept_when_nobody_listens(box: Daemon) -> None:
    process = box.start(shell="head -c 1000000 /dev/zero; echo end", keep=10_000)
    run = told(box.output(process["id"]))
    assert run.stdout.endswith(b"end\n")
    assert run.lost + len(run.stdout) == 1_000_004


def test_signals_reach_the_whole_group(box: Daemon) -> None:
    process = box.start(shell="trap 'echo heard; exit 5' TERM; echo ready; sleep 1000 & echo $!; wait")
    attached = box.attach(process["id"])
    words = attached.until(b"ready\n")
    while words.count(b"\n") < 2:
        frame = attached.receive()
        assert frame is not None
        words += frame.data
    sleeper = int(words.split()[-1])
    while not Path(f"/proc/{sleeper}/cmdline").read_bytes().startswith(b"sleep"):
        time.sleep(0.01)  # until then it is a shell, which would hear the signal and forget it
    assert box.tell(process["id"], "signal", json.dumps({"signal": "TERM"})).status == 204
    run = told(attached.all())
    assert (run.stdout, run.exit["code"]) == (b"heard\n", 5)
    assert gone(sleeper)
    assert box.tell(process["id"], "signal", json.dumps({"signal": "TERM"})).status == 204, (
        "it has ended: nothing happens"
    )
    assert box.tell(process["id"], "signal", json.dumps({"signal": "NOPE"})).status == 400
    attached.close()


def test_a_dropped_attachment_leaves_the_process(box: Daemon) -> None:
    process = box.start(shell="read a; echo $a; read b; echo $b", stdin=True)
    first = box.attach(process["id"])
    first.send(Kind.STDIN, b"1\n")
    assert first.until(b"1\n") == b"1\n"
    first.close()
    second = box.attach(process["id"], "from=2")
    second.send(Kind.STDIN, b"2\n")
    run = told(second.all())
    assert (run.stdout, run.exit["code"]) == (b"2\n", 0)
    second.close()


def test_a_terminal_with_its_size_and_its_signals(box: Daemon) -> None:
    process = box.start(argv=["sh"], terminal={"cols": 91, "rows": 33}, env={"PS1": "% "})
    terminal = box.attach(process["id"])
    terminal.send(Kind.STDIN, b"stty size; tty\n")
    said = terminal.until(b"33 91\r\n")
    assert b"/dev/pts/" in said or terminal.until(b"/dev/pts/")
    terminal.send(Kind.RESIZE, b'{"cols":100,"rows":40}')
    terminal.send(Kind.STDIN, b"stty size\n")
    terminal.until(b"40 100\r\n")
    terminal.send(Kind.STDIN, b"sh -c 'echo be''gun; exec sleep 1000'\n")
    terminal.until(b"begun\r\n")  # not its echo: the shell has handed the terminal over
    terminal.send(Kind.STDIN, b"\x03")
    terminal.send(Kind.STDIN, b"echo still $((40 + 2))\n")
    terminal.until(b"still 42\r\n")
    terminal.send(Kind.STDIN_END)
    assert told(terminal.all()).exit["signal"] == 0
    terminal.close()


def test_what_a_client_may_not_send_is_answered(box: Daemon) -> None:
    process = box.start(shell="read x", stdin=True)
    attached = box.attach(process["id"])
    assert attached.receive() is not None
    attached.send(Kind.EXIT)
    frame = attached.receive()
    assert frame is not None
    assert frame.kind is Kind.ERROR
    attached.close()


def test_hundreds_of_short_processes_leave_nothing(box: Daemon) -> None:
    box.run(argv=["true"])
    files = len(os.listdir(f"/proc/{box.process.pid}/fd"))
    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(lambda n: box.run(argv=["sh", "-c", f"echo {n}"]), range(300)))
    assert [run.stdout for run in ends] == [f"{n}\n".encode() for n in range(300)]
    children = Path(f"/proc/{box.process.pid}/task/{box.process.pid}/children").read_text().split()
    assert children == []
    assert len(os.listdir(f"/proc/{box.process.pid}/fd")) <= files + 8
    assert len(box.ask("GET", "/box/v1/processes").value["processes"]) <= 257


def test_input_that_nobody_reads_is_no_error(box: Daemon) -> None:
    run = box.run(shell="exit 4", stdin=base64.b64encode(b"x" * 1_000_000).decode())
    assert run.exit["code"] == 4


def test_a_port_inside(box: Daemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connection = box.open(f"GET /box/v1/ports/{port} HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: sandpool-tcp")
        inside, _ = server.accept()
        with connection, inside, connection.makefile("rb") as file:
            assert b" 101 " in file.readline()
            while file.readline() != b"\r\n":
                pass
            connection.sendall(b"ping")
            assert inside.recv(10) == b"ping"
            connection.shutdown(socket.SHUT_WR)
            assert inside.recv(10) == b""
            inside.sendall(b"pong")
            inside.close()
            assert file.read() == b"pong"
    assert box.ask("GET", f"/box/v1/ports/{port}").status == 400
    upgrade = {"Connection": "Upgrade", "Upgrade": "sandpool-tcp"}
    assert box.ask("GET", f"/box/v1/ports/{port}", headers=upgrade).status == 503


@pytest.mark.parametrize("header", ["", "Bearer wrong", f"Basic {TOKEN}", "Bearer"])
def test_without_the_token_nothing_is_answered(box: Daemon, header: str) -> None:
    for path in ("/box/v1/processes", "/", "/v1/files/", "/box/v1/health"):
        assert box.ask("GET", path, headers={"Authorization": header}).status == 401
