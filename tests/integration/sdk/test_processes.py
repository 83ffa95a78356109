"""Processes that go on by themselves, and terminals, also over connections that break. Both halves of the SDK."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from sandpool.kube.errors import Unreachable
from sandpool.sdk.errors import CommandError, CommandLost, CommandTimeout, ProcessNotFound, TimedOut
from sandpool.sdk.values import Exit
from support.network.boxd_daemon import Daemon
from support.network.cutting_proxy import a_cutting_proxy
from support.network.sdk_box import a_box

NUMBERS = "".join(f"{number}\n" for number in range(200_000)).encode()


async def test_a_conversation(box: Any) -> None:
    process = await box.start("while read line; do echo you said $line; done; echo bye >&2; exit 5")
    assert await process.poll() is None
    await process.stdin.write("hello\n")
    first = await process.read()
    assert (first.stream, first.text) == ("stdout", "you said hello\n")
    await process.stdin.write(b"world\n")
    await process.stdin.close()
    rest = [output async for output in process]
    assert {output.stream: output.text for output in rest} == {"stdout": "you said world\n", "stderr": "bye\n"}
    assert process.exit == Exit(5)
    assert (await process.wait(), await process.poll()) == (5, 5)


async def test_waiting_has_a_limit_and_leaves_the_process(box: Any) -> None:
    process = await box.start(["sleep", "1000"])
    with pytest.raises(
        CommandTimeout, match=r"process \d+ \(sleep 1000\) has not ended within 0.1 s; it keeps running"
    ):
        await process.wait(timeout=0.1)
    with pytest.raises(TimedOut, match="no output within"):
        await process.read(timeout=0.05)
    with pytest.raises(CommandTimeout):
        await process.result(timeout=0.05)
    assert await process.poll() is None
    await process.terminate()
    assert await process.wait() == 128 + 15
    assert process.exit == Exit(143, 15)
    await process.close()


async def test_waiting_does_not_hold_up_a_process_that_talks_much(box: Any) -> None:
    process = await box.start("head -c 3000000 /dev/zero; echo end", keep=1000)
    first = await process.read()
    assert first.data
    assert await process.wait(timeout=30) == 0
    heard = [first, *[output async for output in process]]  # on a busy machine all may be over before the first is read
    assert sum(output.lost for output in heard) > 0
    assert heard[-1].data.endswith(b"end\n")
    assert heard[-1].position + len(heard[-1].data) == 3_000_004


async def test_signals_by_name_and_number_reach_the_group(box: Any) -> None:
    script = 'trap "echo got usr1" USR1; trap "echo got int; exit 0" INT; echo ready; while :; do :; done'
    process = await box.start(script)
    assert (await process.read()).text == "ready\n"
    await process.signal("usr1")
    assert (await process.read()).text == "got usr1\n"
    await process.signal(2)
    assert (await process.result()).stdout == "got int\n"
    with pytest.raises(CommandError, match="is not a signal"):
        await process.signal("NONSENSE")


async def test_coming_back_by_id_from_a_position(box: Any, daemon: Daemon) -> None:
    process = await box.start("echo one; read line; echo two $line; read line; echo three $line")
    assert (await process.read()).text == "one\n"
    await process.close()
    async with a_box("async", daemon.port) as elsewhere:
        again = await elsewhere.process(process.id, position=process.position)
        await again.stdin.write("x\n")
        assert (await again.read()).text == "two x\n"
        await again.close()
        third = await elsewhere.process(process.id)
        await third.stdin.write("y\n")
        assert (await third.result()).stdout == "one\ntwo x\nthree y\n"
    assert await process.wait() == 0


async def test_two_handles_may_write(box: Any) -> None:
    process = await box.start(["cat"])
    other = await box.process(process.id)
    for handle, words in ((process, "a"), (other, "b"), (process, "c"), (other, "d")):
        await handle.stdin.write(words)
    await other.stdin.close()
    assert (await process.result()).stdout == "abcd"


async def test_processes_are_listed_and_forgotten(box: Any) -> None:
    process = await box.start(["sleep", "999"])
    (found,) = [one for one in await box.processes() if one.id == process.id]
    assert (found.argv, found.running, found.exit, found.pid) == (("sleep", "999"), True, None, process.pid)
    await process.remove()
    assert process.id not in [one.id for one in await box.processes()]
    with pytest.raises(ProcessNotFound, match=r"sandbox default/box.*processes\(\)"):
        await box.process(process.id)
    with pytest.raises(ProcessNotFound):
        await process.wait()
    with pytest.raises(ProcessNotFound):
        await box.process("../../health")


async def test_leaving_the_context_ends_the_process(box: Any) -> None:
    async with await box.start("sleep 1000") as process:
        assert await process.poll() is None
    with pytest.raises(ProcessNotFound):
        await process.info()


async def test_a_process_with_a_time_limit(box: Any) -> None:
    process = await box.start("echo x; sleep 100", timeout=0.2)
    result = await process.result()
    assert (result.timed_out, result.stdout) == (True, "x\n")


async def test_input_after_its_end_is_told(box: Any) -> None:
    process = await box.start("exit 0")
    await process.wait()
    with pytest.raises(CommandError, match="takes no more input"):
        await process.stdin.write("late")
    without = await box.start("cat", stdin=False)
    assert await without.wait() == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_output_over_a_connection_that_breaks(kind: str, daemon: Daemon, seed: int) -> None:
    async with a_cutting_proxy(daemon.port, seed, 500, 200_000) as proxy, a_box(kind, proxy.port) as box:
        process = await (await _direct(daemon)).start("seq 0 199999", keep=2 << 20)
        handle = await _patiently(lambda: box.process(process.id))
        said = b"".join([output.data async for output in handle])
        assert said == NUMBERS
        assert handle.exit == Exit(0)
        assert proxy.cuts >= 4


@pytest.mark.parametrize("seed", [1, 2])
async def test_input_over_a_connection_that_breaks(kind: str, daemon: Daemon, seed: int) -> None:
    """Some of what was sent arrived before the cut, and nobody knows how much: none of it arrives twice."""
    process = await (await _direct(daemon)).start("sha256sum")
    async with a_cutting_proxy(daemon.port, seed, 2000, 300_000) as proxy, a_box(kind, proxy.port) as box:
        handle = await _patiently(lambda: box.process(process.id))
        for at in range(0, len(NUMBERS), 100_000):
            await handle.stdin.write(NUMBERS[at : at + 100_000])
        await handle.stdin.close()
        assert (await handle.result()).stdout.split()[0] == hashlib.sha256(NUMBERS).hexdigest()
        assert proxy.cuts >= 3


async def test_a_run_whose_connection_breaks_says_so_and_ends(kind: str, daemon: Daemon, home: Path) -> None:
    async with a_cutting_proxy(daemon.port, 1, 30_000, 40_000) as proxy, a_box(kind, proxy.port) as box:
        with pytest.raises(CommandLost, match=r"sandbox default/box: the connection was lost while 'echo .*`start`"):
            await box.run("echo $$ >pid; while :; do seq 1000; done", cwd=home.name)
    pid = int((home / "pid").read_text())
    while Path(f"/proc/{pid}").exists() and " Z" not in Path(f"/proc/{pid}/stat").read_text():
        await asyncio.sleep(0.01)


async def test_a_terminal(box: Any) -> None:
    async with await box.terminal("stty size; read line; echo got $line; stty size", cols=100, rows=30) as terminal:
        assert await _until(terminal, b"\r\n") == b"30 100\r\n"
        await terminal.resize(132, 50)
        await terminal.write("hi\n")
        assert await _until(terminal, b"50 132\r\n") == b"hi\r\ngot hi\r\n50 132\r\n"
        assert await terminal.read() == b""
        assert await terminal.wait() == 0


async def test_a_shell_on_a_terminal_is_interrupted_by_what_is_typed(box: Any) -> None:
    async with await box.terminal(["sh", "-i"], env={"PS1": "prompt", "ENV": ""}) as terminal:
        await _until(terminal, b"prompt", line=False)
        await terminal.write("sh -c 'echo sta''rted on $(tty | cut -c1-8); exec sleep 1000'\n")
        said = await _until(terminal, b"started on")  # not its echo: the shell has handed the terminal over
        assert b"started on /dev/pts" in said
        await terminal.write("\x03")
        await _until(terminal, b"prompt", line=False)
        await terminal.write("exit 7\n")
        assert await terminal.wait(timeout=30) == 7


async def test_one_reads_a_terminal_while_another_writes(box: Any) -> None:
    """Each alone would make a connection; two would be one that nobody reads, which holds up the program."""
    async with await box.terminal("stty raw -echo; echo ready; cat") as terminal:
        shown, lines = bytearray(), [f"{number}\n".encode() * 100 for number in range(200)]

        async def read() -> None:
            while not shown.endswith(lines[-1]):
                shown.extend(await terminal.read())

        async def write() -> None:
            for line in lines:
                await terminal.write(line)

        reading = asyncio.create_task(read())
        while b"ready" not in shown:
            await asyncio.sleep(0.01)
        await asyncio.gather(reading, write())
        assert shown.endswith(b"".join(lines))


async def test_a_terminal_is_left_and_come_back_to(box: Any) -> None:
    terminal = await box.terminal(["cat"])
    await terminal.write("one\n")
    await _until(terminal, b"one\r\none\r\n")
    await terminal.detach()
    again = await box.terminal(id=terminal.id, position=terminal.position, cols=90)
    await again.write("two\n")
    assert await _until(again, b"two\r\ntwo") == b"two\r\ntwo\r\n"
    await again.close()
    with pytest.raises(ProcessNotFound):
        await box.process(terminal.id)


async def test_a_terminal_over_a_connection_that_breaks(kind: str, daemon: Daemon) -> None:
    async with a_cutting_proxy(daemon.port, 5, 3000, 60_000) as proxy, a_box(kind, proxy.port) as box:
        made = await (await _direct(daemon)).terminal("stty raw; seq 0 50000; sleep 0.1")
        terminal = await _patiently(lambda: box.process(made.id))
        said = b"".join([output.data async for output in terminal])
        assert said == NUMBERS[: len(said)]
        assert len(said) == len("".join(f"{number}\n" for number in range(50_001)))


@pytest.fixture(params=["async", "sync"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


_boxes: list[Any] = []


async def _direct(daemon: Daemon) -> Any:
    box = a_box("async", daemon.port)
    opened = await box.__aenter__()
    _boxes.append(box)
    return opened


@pytest.fixture(autouse=True)
async def _close_direct() -> Any:
    yield
    while _boxes:
        await _boxes.pop().__aexit__(None, None, None)


async def _patiently(call: Any) -> Any:
    """The first request may be cut too, and is not repeated by itself."""
    while True:
        try:
            return await call()
        except Unreachable:
            continue


async def _until(terminal: Any, words: bytes, *, line: bool = True) -> bytes:
    said = b""
    while words not in said:
        data = await terminal.read(timeout=20)
        assert data, said
        said += data
    while line and not said.endswith(b"\n"):
        said += await terminal.read(timeout=20)
    return said
