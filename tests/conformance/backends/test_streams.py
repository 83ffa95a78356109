"""Commands in running containers, and their own streams: what every backend that runs something guarantees."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from conformance.backends.subject import Subject, a_workload, ended
from sandpool.model.metadata import Uid
from sandpool.node.backend import BackendError, Command, Exit, UnknownPod, Workload
from support.node.streams import TestStreams


def shell(text: str, **more: object) -> Command:
    return Command(("sh", "-c", text), **more)  # type: ignore[arg-type]


def with_container(work: Workload, **fields: object) -> Workload:
    """The same pod with other fields in its container."""
    container = msgspec.structs.replace(work.spec.containers[0], **fields)
    return replace(work, spec=msgspec.structs.replace(work.spec, containers=(container,)))


async def test_a_command_has_three_streams_and_an_exit_code(real: Subject) -> None:
    work = a_workload()
    await real.started(work)
    streams = TestStreams(b"some input")
    end = await real.backend.exec(work.uid, "main", shell("cat; echo wrong >&2; exit 7"), streams)
    assert (end.code, end.signal) == (7, 0)
    assert (bytes(streams.out[1]), bytes(streams.out[2])) == (b"some input", b"wrong\n")


async def test_a_command_that_a_signal_ends_says_which(real: Subject) -> None:
    work = a_workload()
    await real.started(work)
    end = await real.backend.exec(work.uid, "main", shell("kill -KILL $$"), TestStreams())
    assert (end.code, end.signal) == (137, signal.SIGKILL)


async def test_a_command_gets_its_environment_and_folder(real: Subject) -> None:
    work = replace(a_workload(), env={"main": {"GREETING": "hello"}})
    await real.started(work)
    streams = TestStreams()
    command = shell('echo "$GREETING $MORE $HOSTNAME"; pwd', env={"MORE": "world"}, cwd="/usr")
    assert (await real.backend.exec(work.uid, "main", command, streams)).code == 0
    assert streams.text == b"hello world pod-1\n/usr\n"


@pytest.mark.parametrize("argv", [("no-such-command",), ("/usr",), ("/no/such/file", "argument")])
async def test_a_command_that_cannot_be_started_is_an_error(real: Subject, argv: tuple[str, ...]) -> None:
    work = a_workload()
    await real.started(work)
    with pytest.raises(BackendError) as error:
        await real.backend.exec(work.uid, "main", Command(argv), TestStreams())
    assert error.value.reason == "StartError"
    assert argv[0] in error.value.message
    with pytest.raises(BackendError):
        await real.backend.exec(work.uid, "main", Command(()), TestStreams())


async def test_large_binary_output_arrives_whole(real: Subject) -> None:
    work = a_workload()
    await real.started(work)
    data = os.urandom(1 << 20)
    streams = TestStreams(data)
    assert (await real.backend.exec(work.uid, "main", shell("cat"), streams)).code == 0
    assert streams.text == data


async def test_a_reader_that_stops_slows_the_command_and_loses_nothing(real: Subject) -> None:
    work = a_workload()
    await real.started(work)
    streams = TestStreams()
    streams.gate.clear()
    size = 3 << 20
    command = shell(f"head -c {size} /dev/zero; echo done >&2")
    running = asyncio.create_task(real.backend.exec(work.uid, "main", command, streams))
    other = TestStreams()
    assert (await real.backend.exec(work.uid, "main", shell("echo meanwhile"), other)).code == 0
    assert not running.done()
    streams.gate.set()
    assert (await running).code == 0
    assert len(streams.text) == size


async def test_what_stays_in_the_background_does_not_keep_a_command_from_ending(real: Subject) -> None:
    work = a_workload()
    await real.started(work)
    streams = TestStreams()
    async with asyncio.timeout(20):
        end = await real.backend.exec(work.uid, "main", shell("sleep 1000 & echo said"), streams)
    assert (end.code, streams.text) == (0, b"said\n")


async def test_a_command_that_floods_from_the_background_is_let_go(real: Subject) -> None:
    work = a_workload()
    await real.started(work)
    streams = TestStreams()
    async with asyncio.timeout(20):
        end = await real.backend.exec(work.uid, "main", shell("yes & sleep 0.1; exit 2"), streams)
    assert end.code == 2


async def test_a_cancelled_command_is_ended_with_its_children(real: Subject) -> None:
    work = a_workload()
    await real.started(work)
    streams = TestStreams(None)
    command = shell("sleep 1000 & sleep 1001 & echo ready; wait")
    before = (await real.backend.stats(work.uid)).processes
    assert before == 1
    running = asyncio.create_task(real.backend.exec(work.uid, "main", command, streams))
    await streams.until(lambda text: text == b"ready\n")
    assert (await real.backend.stats(work.uid)).processes >= before + 3
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(10):
        while (await real.backend.stats(work.uid)).processes > before:
            await asyncio.sleep(0.01)


async def test_a_client_that_breaks_ends_its_command(real: Subject) -> None:
    class Broken(TestStreams):
        async def write(self, stream: int, data: bytes) -> None:
            raise ConnectionResetError

    work = a_workload()
    await real.started(work)
    before = (await real.backend.stats(work.uid)).processes
    with pytest.raises(ConnectionResetError):
        await real.backend.exec(work.uid, "main", shell("echo x; sleep 1000"), Broken(None))
    async with asyncio.timeout(10):
        while (await real.backend.stats(work.uid)).processes > before:
            await asyncio.sleep(0.01)


async def test_a_terminal_has_a_size_that_changes(real: Subject) -> None:
    work = a_workload()
    await real.started(work)
    streams = TestStreams(None)
    streams.resize(123, 45)
    command = shell("test -t 0 && test -t 1 && echo terminal; read line; stty size; exit 3", tty=True)
    running = asyncio.create_task(real.backend.exec(work.uid, "main", command, streams))
    await streams.until(lambda text: b"terminal" in text)
    streams.feed(b"go\n")
    end = await running
    assert end.code == 3
    assert b"45 123" in streams.text
    assert not streams.out[2]


async def test_control_c_reaches_the_program_in_the_foreground(real: Subject) -> None:
    work = a_workload()
    await real.started(work)
    streams = TestStreams(None)
    running = asyncio.create_task(
        real.backend.exec(work.uid, "main", shell("echo ready; exec sleep 1000", tty=True), streams)
    )
    await streams.until(lambda text: b"ready" in text)
    streams.feed(b"\x03")
    end = await running
    assert end.signal == signal.SIGINT


async def test_thirty_commands_at_once(real: Subject) -> None:
    work = a_workload()
    await real.started(work)

    async def one(number: int) -> tuple[int, bytes]:
        streams = TestStreams(str(number).encode())
        end = await real.backend.exec(work.uid, "main", shell(f"cat; exit {number}"), streams)
        return end.code, streams.text

    answers = await asyncio.gather(*(one(number) for number in range(30)))
    assert answers == [(number, str(number).encode()) for number in range(30)]


async def test_a_command_in_a_pod_that_ends_ends_too(real: Subject) -> None:
    work = a_workload()
    await real.started(work)
    streams = TestStreams(None)
    running = asyncio.create_task(real.backend.exec(work.uid, "main", shell("echo ready; sleep 1000"), streams))
    await streams.until(lambda text: b"ready" in text)
    await real.backend.stop_pod(work.uid, 0)
    assert (await running).code == 137
    await real.until(work.uid, lambda seen: seen is None)


async def test_nothing_runs_in_what_is_not_there(real: Subject) -> None:
    work = a_workload(command="exit 0")
    await real.backend.start_pod(work)
    await real.until(work.uid, ended)
    for uid, container in ((Uid("unknown"), "main"), (work.uid, "other"), (work.uid, "main")):
        with pytest.raises(UnknownPod):
            await real.backend.exec(uid, container, Command(("true",)), TestStreams())
        with pytest.raises(UnknownPod):
            await real.backend.attach(uid, container, TestStreams())


async def test_a_paused_pod_takes_no_commands(real: Subject) -> None:
    work = a_workload(command="while echo tick; do sleep 0.01; done")
    await real.started(work)
    await real.backend.pause(work.uid)
    with pytest.raises(BackendError):
        await real.backend.exec(work.uid, "main", Command(("true",)), TestStreams())
    await real.backend.resume(work.uid)
    assert (await real.backend.exec(work.uid, "main", Command(("true",)), TestStreams())).code == 0


# attach


async def test_attached_one_reads_and_writes_the_containers_own_streams(real: Subject) -> None:
    work = with_container(a_workload(command="read line; echo got $line; echo err >&2; exit 5"), stdin=True)
    await real.started(work)
    streams = TestStreams(None)
    streams.feed(b"word\n")
    end = await real.backend.attach(work.uid, "main", streams)
    assert end.code == 5
    assert (streams.text, bytes(streams.out[2])) == (b"got word\n", b"err\n")


async def test_stdin_once_ends_with_the_first_one_who_is_attached(real: Subject) -> None:
    work = with_container(a_workload(command="cat; exit 6"), stdin=True, stdin_once=True)
    await real.started(work)
    streams = TestStreams(b"all")
    assert (await real.backend.attach(work.uid, "main", streams)).code == 6
    assert streams.text == b"all"


async def test_one_who_lets_go_leaves_the_container_alone(real: Subject) -> None:
    work = with_container(a_workload(command="while read line; do echo got $line; done"), stdin=True)
    await real.started(work)
    for word in (b"one", b"two"):
        streams = TestStreams(None)
        attached = asyncio.create_task(real.backend.attach(work.uid, "main", streams))
        streams.feed(word + b"\n")
        await streams.until(lambda text, word=word: b"got " + word in text)  # type: ignore[misc]
        attached.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attached
    assert real.container(work.uid).restarts == 0
    assert not isinstance(real.container(work.uid).state, Exit)


async def test_a_container_may_have_a_terminal(real: Subject) -> None:
    command = "test -t 0 && echo terminal; read line; stty size; exit 0"
    work = with_container(a_workload(command=command), stdin=True, tty=True)
    await real.started(work)
    streams = TestStreams(None)
    streams.resize(99, 33)
    attached = asyncio.create_task(real.backend.attach(work.uid, "main", streams))
    await asyncio.sleep(0)
    streams.feed(b"go\n")
    assert (await attached).code == 0
    assert b"33 99" in streams.text
    logged = b"".join([text async for text in real.backend.logs(work.uid, "main")])
    assert b"terminal" in logged


# dial


async def test_a_port_inside_can_be_reached(real: Subject, tmp_path: Path) -> None:
    port = 20000 + os.getpid() % 20000
    server = (
        f"import socket; s = socket.create_server(('127.0.0.1', {port})); print('up', flush=True); c, _ = s.accept(); "
        "c.sendall(c.recv(100)[::-1]); c.close()"
    )
    work = with_container(a_workload(), command=("python3", "-c", server))
    await real.started(work)
    async for text in real.backend.logs(work.uid, "main", follow=True):
        assert text == b"up\n"
        break
    connection = await real.backend.dial(work.uid, port)
    loop = asyncio.get_running_loop()
    with connection:
        assert connection.gettimeout() == 0
        await loop.sock_sendall(connection, b"abc")
        assert await loop.sock_recv(connection, 100) == b"cba"


async def test_a_port_where_nobody_listens_refuses(real: Subject) -> None:
    work = a_workload()
    await real.started(work)
    with pytest.raises(BackendError) as error:
        await real.backend.dial(work.uid, 1)
    assert error.value.reason == "ConnectionRefused"
    with pytest.raises(UnknownPod):
        await real.backend.dial(Uid("unknown"), 1)
