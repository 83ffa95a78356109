"""What clients of the two existing runtimes see."""

from __future__ import annotations

import json
import os

import pytest

from support.network.boxd_daemon import Daemon

FORM = {"Content-Type": "multipart/form-data; boundary=edge"}


def form(name: str, data: bytes, field: str = "file") -> bytes:
    head = f'--edge\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n\r\n'
    return head.encode() + data + b"\r\n--edge--\r\n"


def execute(box: Daemon, command: str, **more: object) -> dict[str, object]:
    answer = box.ask("POST", "/execute", json.dumps({"command": command, **more}))
    assert answer.status == 200
    value: dict[str, object] = answer.value
    return value


def test_it_says_that_it_lives(box: Daemon) -> None:
    assert box.ask("GET", "/").value["status"] == "ok"
    assert box.ask("GET", "/v1/health").value["status"] == "ok"


def test_commands_without_a_shell(box: Daemon) -> None:
    assert execute(box, "echo 'a  b' $HOME | cat") == {"stdout": "a  b $HOME | cat\n", "stderr": "", "exit_code": 0}
    assert execute(box, "sh -c 'echo out; echo err >&2; exit 5'") == {
        "stdout": "out\n",
        "stderr": "err\n",
        "exit_code": 5,
    }
    assert execute(box, "pwd")["stdout"] == f"{box.root}\n"


@pytest.mark.parametrize("command", ["no-such-program", "echo 'open", ""])
def test_a_command_that_cannot_run_is_an_answer(box: Daemon, command: str) -> None:
    found = execute(box, command)
    assert found["exit_code"] == 1
    assert str(found["stderr"]).startswith("Failed to execute command: ")


def test_a_time_limit_keeps_what_was_said(box: Daemon) -> None:
    found = execute(box, "sh -c 'echo early; sleep 1000'", timeout_seconds=0.5)
    assert (found["stdout"], found["timed_out"]) == ("early\n", True)


def test_output_that_is_no_text_is_still_output(box: Daemon) -> None:
    assert execute(box, r"printf '\377ok'") == {"stdout": "�ok", "stderr": "", "exit_code": 0}


def test_a_background_child_holds_nobody_up(box: Daemon) -> None:
    found = execute(box, "sh -c 'sleep 1000 & echo $!'")
    os.kill(int(str(found["stdout"])), 9)


def test_a_command_is_needed(box: Daemon) -> None:
    assert box.ask("POST", "/execute", b"{}").status == 422


@pytest.mark.parametrize("data", [b"", b"plain", b"\r\n--edg", b"\r\n--edge-not\r\n" * 100, os.urandom(400_000)])
def test_uploads_of_any_content(box: Daemon, data: bytes) -> None:
    answer = box.ask("POST", "/upload", form("q/z.bin", data), FORM)
    assert (answer.status, answer.value["message"]) == (200, "File 'q/z.bin' uploaded successfully.")
    assert (box.root / "q/z.bin").read_bytes() == data
    assert box.ask("GET", "/download/q%2Fz.bin").body == data


def test_uploads_that_are_no_uploads(box: Daemon) -> None:
    assert box.ask("POST", "/upload", form("../x", b"1"), FORM).status == 403
    assert box.ask("POST", "/upload", form("x", b"1", field="other"), FORM).status == 500
    assert box.ask("POST", "/upload", form("x", b"1")[:-20], FORM).status == 500
    assert os.listdir(box.root) == []


def test_names_are_decoded_once(box: Daemon) -> None:
    (box.root / "100%25").write_bytes(b"x")
    assert box.ask("GET", "/download/100%2525").body == b"x"
    assert box.ask("GET", "/exists/100%2525").value == {"path": "100%25", "exists": True}


def test_lists_with_a_broken_link(box: Daemon) -> None:
    (box.root / "d").mkdir()
    os.symlink("nowhere", box.root / "broken")
    found = box.ask("GET", "/list/").value
    assert {entry["name"]: entry["type"] for entry in found} == {"broken": "file", "d": "directory"}
    assert box.ask("GET", "/list/%2E").value == found
    assert box.ask("GET", "/list/missing").status == 404
    assert box.ask("GET", "/exists/..%2f..%2fetc").status == 403
    assert box.ask("GET", "/download/d").status == 404


def test_files_by_rest(box: Daemon) -> None:
    assert box.ask("PUT", "/v1/files/d%2Fa.txt?mode=0600", b"hi").status == 204
    assert box.ask("PUT", "/v1/files/d/b.txt", form("ignored", b"there"), FORM).status == 204
    assert box.ask("GET", "/v1/files/d/b.txt").body == b"there"
    os.symlink("a.txt", box.root / "d/inside")
    os.symlink("/etc/passwd", box.root / "d/outside")
    for path in ("/v1/files/d", "/v1/files/d/.", "/v1/files/d%2F%2E"):
        entries = box.ask("GET", path).value["entries"]
        assert [(e["name"], e["size"], e["mode"]) for e in entries] == [
            ("a.txt", 2, "0600"),
            ("b.txt", 5, "0644"),
            ("inside", 2, "0600"),
        ]
    assert box.ask("HEAD", "/v1/files/d/none").status == 404
    assert box.ask("DELETE", "/v1/files/d").status == 409
    assert box.ask("DELETE", "/v1/files/d?recursive=perhaps").status == 400
    assert box.ask("DELETE", "/v1/files/d?recursive=true").status == 204
    assert box.ask("GET", "/v1/files/").value == {"path": "/", "entries": []}
    assert box.ask("GET", "/v1/files/..%2fx").value["code"] == "PERMISSION_DENIED"


def test_metadata_shows_no_secret(box: Daemon) -> None:
    assert box.ask("GET", "/v1/metadata").value == {"env": {"SANDBOX_COLOUR": "green"}}
