"""Commands through a real boxd: output, input, ends, limits. Each test runs on both halves of the SDK."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandpool.sdk.errors import CommandError, CommandFailed, CommandNotFound, CommandTimeout
from sandpool.sdk.values import Exit
from support.network.boxd_daemon import Daemon, gone
from support.network.sdk_box import SyncBox, a_box


async def test_text_goes_through_a_shell_and_a_list_does_not(box: Any) -> None:
    assert (await box.run("echo $((6 * 7)); echo oops >&2; exit 3")).stdout == "42\n"
    result = await box.run(["printf", "%s|", "a b", "$HOME", "*"])
    assert (result.stdout, result.stderr, result.exit_code, result.ok) == ("a b|$HOME|*|", "", 0, True)


async def test_exit_code_signal_and_streams_are_told(box: Any) -> None:
    result = await box.run("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code, result.signal) == ("out\n", "err\n", 3, 0)
    assert not result.ok
    killed = await box.run("kill -9 $$")
    assert (killed.exit_code, killed.signal) == (137, 9)


async def test_output_is_never_an_error_because_of_its_encoding(box: Any) -> None:
    result = await box.run(["printf", "\\377\\000caf\\303\\251"])
    assert result.stdout_bytes == b"\xff\x00caf\xc3\xa9"
    assert result.stdout == "\ufffd\0café"
    result.stdout.encode()  # no surrogates


async def test_arguments_and_environment_may_be_any_bytes(box: Any) -> None:
    odd = os.fsdecode(b"\xff\xfeodd")
    result = await box.run(["sh", "-c", 'printf %s "$1$A"', "sh", odd], env={"A": odd})
    assert result.stdout_bytes == b"\xff\xfeodd" * 2


async def test_folder_and_environment(box: Any, home: Path, daemon: Daemon) -> None:
    result = await box.run("pwd; echo $COLOUR", cwd=home.name, env={"COLOUR": "blue"})
    assert result.stdout == f"{home}\nblue\n"
    async with a_box("async", daemon.port, env={"A": "handle", "B": "handle"}) as other:
        assert (await other.run("echo $A $B", env={"B": "call"})).stdout == "handle call\n"


@pytest.mark.parametrize("given", [b"some \xff bytes", "täxt", b""])
async def test_small_input_travels_with_the_request(box: Any, given: bytes | str) -> None:
    expected = given.encode() if isinstance(given, str) else given
    assert (await box.run("cat", stdin=given)).stdout_bytes == expected


async def test_without_input_a_command_has_none(box: Any) -> None:
    assert (await box.run("cat; echo end")).stdout == "end\n"


def pieces(size: int, count: int) -> Iterator[bytes]:
    for number in range(count):
        yield bytes([number % 251]) * size


async def test_large_input_flows_while_output_comes_back(box: Any) -> None:
    data = os.urandom(1 << 16) * 400  # far more than all buffers on the way
    result = await box.run("cat", stdin=data, max_output=1 << 30)
    assert result.stdout_bytes == data


async def test_input_from_a_file_and_from_an_iterator(box: Any, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"x" * 3_000_000)
    with local.open("rb") as file:
        assert (await box.run("wc -c", stdin=file)).stdout.strip() == "3000000"
    assert (await box.run("wc -c", stdin=io.StringIO("ää"))).stdout.strip() == "4"
    result = await box.run("sha256sum", stdin=pieces(100_001, 50))
    assert result.stdout.split()[0] == hashlib.sha256(b"".join(pieces(100_001, 50))).hexdigest()


async def test_a_command_that_does_not_want_its_input_ends_all_the_same(box: Any) -> None:
    result = await box.run("head -c 5; echo; echo done >&2; exit 4", stdin=pieces(1 << 16, 1000))
    assert (len(result.stdout_bytes), result.stderr, result.exit_code) == (6, "done\n", 4)


async def test_a_command_that_first_talks_and_then_reads(box: Any) -> None:
    """It would stand still for ever if nobody read its output while input is waiting."""
    result = await box.run("head -c 20000000 /dev/zero; wc -c", stdin=pieces(1 << 16, 100), max_output=1000)
    assert result.stdout.splitlines()[-1].lstrip("\0").strip() == str(100 << 16)


async def test_a_time_limit_ends_the_whole_group_and_keeps_what_was_said(box: Any) -> None:
    result = await box.run("echo before; sleep 1000 & echo $!; wait", timeout=0.4)
    assert (result.timed_out, result.ok, result.signal) == (True, False, 9)
    first, pid = result.stdout.split()
    assert first == "before"
    assert gone(int(pid))


async def test_a_time_limit_ends_what_has_left_the_group(box: Any) -> None:
    """Also an orphan in a session of its own."""
    result = await box.run("(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000", timeout=2)
    assert result.timed_out
    assert gone(int(result.stdout))


async def test_check_raises_with_the_last_lines(box: Any) -> None:
    with pytest.raises(CommandFailed) as failed:
        await box.run("for n in $(seq 50); do echo line $n >&2; done; echo out; exit 7", check=True)
    assert failed.value.exit_code == 7
    assert failed.value.stdout == "out\n"
    assert failed.value.stderr.endswith("line 50\n")
    assert "exit code 7" in str(failed.value)
    assert "line 50" in str(failed.value)
    assert "line 12" not in str(failed.value)
    assert "sandbox default/box" in str(failed.value)
    with pytest.raises(CommandTimeout) as late:
        await box.run("echo partial; sleep 100", timeout=0.3, check=True)
    assert (late.value.stdout, late.value.stdout_bytes) == ("partial\n", b"partial\n")
    assert isinstance(late.value, TimeoutError)


async def test_a_background_child_holds_nobody_up(box: Any) -> None:
    result = await box.run("sleep 1000 >/dev/null 2>&1 & echo $!; sleep 1000 & echo $!")
    for pid in result.stdout.split():
        os.kill(int(pid), 9)
    assert result.exit_code == 0


async def test_much_output_is_kept_within_its_limit(box: Any) -> None:
    result = await box.run("echo first; head -c 100000000 /dev/zero; echo last; echo note >&2", max_output=1 << 16)
    assert len(result.stdout_bytes) == 1 << 16
    assert result.truncated
    assert result.out.left_out == 100_000_011 - (1 << 16)
    assert result.stdout_bytes.startswith(b"first\n")
    assert result.stdout_bytes.endswith(b"last\n")
    assert f"[{result.out.left_out} bytes left out]" in result.stdout
    assert result.stderr == "note\n"


async def test_a_program_that_is_not_there_is_told_by_name(box: Any) -> None:
    with pytest.raises(CommandNotFound, match=r"sandbox default/box.*'no-such-program'") as absent:
        await box.run(["no-such-program"])
    assert (absent.value.exit_code, absent.value.stderr) == (127, "")
    assert isinstance(absent.value, FileNotFoundError)
    with pytest.raises(CommandError, match=r"cwd: '.*/no-such-folder' does not exist") as elsewhere:
        await box.run("true", cwd="no-such-folder")
    assert type(elsewhere.value) is CommandError, "the folder is missing, not the command"
    with pytest.raises(CommandNotFound, match="no-such-program"):
        await box.run(["no-such-program"], stdin=pieces(1000, 3))
    with pytest.raises(CommandNotFound, match="no-such-program"):
        await box.start(["no-such-program"])
    assert (await box.run("no-such-program")).exit_code == 127
    with pytest.raises(CommandNotFound, match="no-such-program") as by_shell:
        await box.run("no-such-program", check=True)
    assert "not found" in by_shell.value.stderr


@pytest.mark.parametrize(
    ("command", "options", "error"),
    [([], {}, ValueError), ([1], {}, TypeError), (5, {}, TypeError), (b"x", {}, TypeError), ("x", {"timeout": 0}, ValueError), ("x", {"env": {"A": 1}}, TypeError),
     ("x", {"env": ["A=1"]}, TypeError), ("x", {"stdin": 5}, TypeError), ("x", {"max_output": 0}, ValueError)],
)  # fmt: skip
async def test_nonsense_is_refused_before_anything_is_sent(box: Any, command: Any, options: Any, error: Any) -> None:
    with pytest.raises(error):
        await box.run(command, **options)


async def test_output_is_streamed_as_it_comes(box: Any, home: Path) -> None:
    """The command waits for a file that is only made when its first words were heard."""
    said = []
    async with box.stream("echo one; while [ ! -e go ]; do sleep 0.01; done; echo two >&2", cwd=home.name) as stream:
        async for output in stream:
            said.append((output.stream, output.text, output.position))
            (home / "go").touch()
        assert stream.exit == Exit(0)
    assert said == [("stdout", "one\n", 0), ("stderr", "two\n", 4)]


async def test_streams_keep_their_order(box: Any) -> None:
    """What is written when the other stream has been heard comes after it, and each stream is in its own order."""
    script = "for n in 1 2 3 4 5; do echo o$n; read go; echo e$n >&2; read go; done"
    process, said = await box.start(script), list[str]()
    for _ in range(10):
        said.append((await process.read()).text)
        await process.stdin.write("go\n")
    assert await process.wait() == 0
    assert "".join(said).split() == [f"{kind}{n}" for n in range(1, 6) for kind in "oe"]


async def test_leaving_a_stream_early_ends_the_command(box: Any) -> None:
    async with box.stream("echo $$; exec sleep 1000") as stream:
        async for output in stream:
            pid = int(output.text)
            break
    assert gone(pid)


async def test_breaking_out_of_the_iteration_ends_the_command(daemon: Daemon) -> None:
    async with a_box("async", daemon.port) as box:
        async for output in box.stream("echo $$; exec sleep 1000"):
            pid = int(output.text)
            break
        assert await asyncio.to_thread(gone, pid)


def test_breaking_out_of_the_iteration_ends_the_command_without_await(daemon: Daemon) -> None:
    box = SyncBox(daemon.port)
    for output in box.stream("echo $$; exec sleep 1000"):
        pid = int(output.text)
        break
    assert gone(pid)
    box.way.http.close()


async def test_a_run_uses_one_connection_again_and_again(box: Any, daemon: Daemon) -> None:
    for _ in range(5):
        await box.run("true")
    assert len(box.way.http.idle) == 1


@pytest.mark.parametrize("fed", [False, True])
async def test_cancelling_a_run_ends_the_command(daemon: Daemon, home: Path, fed: bool) -> None:
    """Also while it neither says nor reads anything."""
    async with a_box("async", daemon.port) as box:
        stdin = pieces(1 << 16, 1000) if fed else None
        running = asyncio.create_task(box.run("echo $$ > pid; exec sleep 1000", cwd=home.name, stdin=stdin))
        while not (home / "pid").exists() or not (home / "pid").read_text():
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(gone, int((home / "pid").read_text()))


async def test_many_commands_at_once(box: Any) -> None:
    results = await asyncio.gather(*(box.run(f"echo {number}; sleep 0.05") for number in range(20)))
    assert [int(result.stdout) for result in results] == list(range(20))
