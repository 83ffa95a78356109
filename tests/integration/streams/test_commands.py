"""exec and attach, over every protocol that clients speak."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import psutil
import pytest

from sandpool.controlplane.apiserver.limits import StreamLimits
from sandpool.controlplane.apiserver.streams.spdy.frames import data_frame
from sandpool.wire.websocket import Opcode, frame
from support.network.spdy_client import Words
from support.node.streaming import (
    PODS,
    SOCKET,
    Stage,
    eventually,
    heard,
    query,
    settled,
    spdy,
    spdy_headers,
    stage,
    upgraded,
    websocket,
)

HELD = 20 * 1024 * 1024
"""More than all buffers on the way together, most of them the kernel's; less than what the tests send."""
LOTS = 40 * 1024 * 1024


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as made:
        await made.pod()
        yield made


def shell(script: str, **options: bool) -> str:
    return "box/exec?" + query("sh", "-c", script, **{"stdout": True, "stderr": True, **options})


SPEAKS = "echo out; echo err >&2; exit 3"


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"])
async def test_outputs_and_exit_code(box: Stage, protocol: str) -> None:
    async with websocket(box, shell(SPEAKS), protocol) as socket:
        assert socket.protocol == protocol
        got = await heard(socket)
    assert (got.channels[1], got.channels[2], got.code) == (b"out\n", b"err\n", 1000)
    assert got.status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


@pytest.mark.parametrize("protocols", [("channel.k8s.io",), ("base64.channel.k8s.io",), ()])
async def test_the_oldest_versions_tell_errors_as_text(box: Stage, protocols: tuple[str, ...]) -> None:
    async with websocket(box, shell(SPEAKS), *protocols) as socket:
        got = await heard(socket)
    assert got.channels[3] == b"command terminated with non-zero exit code: exit status 3"
    async with websocket(box, shell("exit 0"), *protocols) as socket:
        assert 3 not in (await heard(socket)).channels


async def test_stdin_can_be_closed_from_version_5_on(box: Stage) -> None:
    data = os.urandom(3_000_000)
    async with websocket(box, shell("cat", stdin=True), "v5.channel.k8s.io") as socket:

        async def send() -> None:
            await socket.send_bytes(b"\0" + data)  # in one message: none is too long
            await socket.send_bytes(b"\xff\0")

        sending = asyncio.create_task(send())
        got = await heard(socket)
        await sending
    assert got.channels[1] == data
    assert got.status == {"metadata": {}, "status": "Success"}


async def test_stdin_in_base64_and_in_text(box: Stage) -> None:
    async with websocket(box, shell("head -c 5", stdin=True), "v4.base64.channel.k8s.io") as socket:
        await socket.send_str("0" + base64.b64encode(b"hello").decode())
        assert (await heard(socket)).channels[1] == b"hello"
    async with websocket(box, shell("head -c 6", stdin=True), "v4.channel.k8s.io") as socket:
        await socket.send_str("\0hé" + "llo")
        assert (await heard(socket)).channels[1] == "héllo".encode()


async def test_a_command_without_stdin_sees_its_end(box: Stage) -> None:
    async with websocket(box, shell("cat; echo over"), "v5.channel.k8s.io") as socket:
        assert (await heard(socket)).channels[1] == b"over\n"


async def test_a_command_that_does_not_exist(box: Stage) -> None:
    async with websocket(box, "box/exec?" + query("/no/such", stdout=True), "v5.channel.k8s.io") as socket:
        status = (await heard(socket)).status
    assert (status["reason"], status["code"]) == ("InternalError", 500)
    assert "error executing command in container" in status["message"]
    assert "No such file or directory" in status["message"]


async def test_a_terminal_and_its_sizes(box: Stage) -> None:
    script = "stty size; trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.05; done"
    async with websocket(box, shell(script, stdin=True, stderr=False, tty=True), "v5.channel.k8s.io") as socket:
        seen = b""
        while b"ready" not in seen:
            seen += (await socket.receive_bytes())[1:]
        await socket.send_bytes(b'\4{"Width":123,"Height":45}')
        got = await heard(socket)
    assert b"45 123" in got.channels[1]
    assert got.status["status"] == "Success"


# SPDY.


@pytest.mark.parametrize("version", ["v5.channel.k8s.io", "v4.channel.k8s.io", "v2.channel.k8s.io", ""])
async def test_spdy(box: Stage, version: str) -> None:
    data = os.urandom(1_000_000)
    script = "cat; echo err >&2; exit 4"
    async with spdy(box, shell(script, stdin=True), *filter(None, [version])) as client:
        error, stdin, stdout, stderr = [
            await client.open(streamType=kind) for kind in ("error", "stdin", "stdout", "stderr")
        ]
        await stdin.replied.wait()
        for start in range(0, len(data), 50_000):
            await client.send(stdin, data[start : start + 50_000])
        await client.send(stdin, b"", fin=True)
        for stream in (error, stdout, stderr):
            await stream.ended.wait()
        assert bytes(stdout.data) == data
        assert bytes(stderr.data) == b"err\n"
    if version in ("v2.channel.k8s.io", ""):
        assert bytes(error.data) == b"command terminated with non-zero exit code: exit status 4"
    else:
        assert msgspec.json.decode(error.data)["details"]["causes"][0]["message"] == "4"


async def test_spdy_terminal(box: Stage) -> None:
    script = "until stty size | grep 17; do sleep 0.02; done"
    async with spdy(box, shell(script, stdin=True, stderr=False, tty=True), "v4.channel.k8s.io") as client:
        error, _, stdout, resize = [
            await client.open(streamType=kind) for kind in ("error", "stdin", "stdout", "resize")
        ]
        await client.send(resize, b'{"Width":71,"Height":17}\n')
        await error.ended.wait()
        assert b"17 71" in stdout.data


async def test_spdy_streams_that_never_come(tmp_path: Path) -> None:
    async with stage(tmp_path, StreamLimits(opening=0.1)) as box:
        await box.pod()
        async with spdy(box, shell("echo hi"), "v4.channel.k8s.io") as client:
            error = await client.open(streamType="error")
            await client.open(streamType="nonsense")
            await error.ended.wait()
        assert b"timed out waiting for client to create streams" in error.data
        assert not box.node.execs


# Who waits for whom.


async def test_a_client_that_does_not_read_slows_the_command_down(box: Stage) -> None:
    async with upgraded(box, "GET", shell(f"head -c {LOTS} /dev/zero"), SOCKET) as raw:
        assert await settled(lambda: box.node.shown) < HELD
        total = 0
        while total <= LOTS:
            total += len(await raw.read())
    assert box.node.shown == LOTS


async def test_a_client_that_does_not_read_spdy_slows_the_command_down(box: Stage) -> None:
    async with upgraded(box, "POST", shell(f"head -c {LOTS} /dev/zero"), spdy_headers("v4.channel.k8s.io")) as raw:
        words = Words()
        for number, kind in enumerate(("error", "stdout", "stderr")):
            await raw.write(words.open(2 * number + 1, {"streamType": kind}))
        assert 0 < await settled(lambda: box.node.shown) < HELD
        total = 0
        while total < LOTS:
            total += len(await raw.read())


@pytest.mark.parametrize("wire", ["websocket", "spdy"])
async def test_a_command_that_does_not_read_slows_the_client_down(box: Stage, wire: str) -> None:
    headers = SOCKET if wire == "websocket" else spdy_headers("v4.channel.k8s.io")
    async with upgraded(box, "POST" if wire == "spdy" else "GET", shell("sleep 600", stdin=True), headers) as raw:
        if wire == "spdy":
            words, kinds = Words(), ("stdin", "stdout", "stderr", "error")
            opening = b"".join(words.open(2 * n + 1, {"streamType": k}) for n, k in enumerate(kinds))
            await raw.write(opening)
            chunk = data_frame(1, b"x" * 60_000)
        else:
            chunk = client_frame(b"\0" + b"x" * 60_000)
        sent = 0

        async def send() -> None:
            nonlocal sent
            while sent < LOTS:
                await raw.write(chunk)
                sent += len(chunk)

        sending = asyncio.create_task(send())
        assert await settled(lambda: sent) < HELD
        sending.cancel()


def client_frame(payload: bytes, opcode: Opcode = Opcode.BINARY) -> bytes:
    plain = frame(opcode, payload)
    size = {126: 4, 127: 10}.get(plain[1], 2)
    return plain[:1] + bytes((plain[1] | 128,)) + plain[2:size] + b"\0\0\0\0" + payload


async def test_a_client_waits_for_a_sign_of_life_behind_data_that_nobody_reads(tmp_path: Path) -> None:
    async with stage(tmp_path, StreamLimits(quiet=0.05)) as box:
        await box.pod()
        async with upgraded(box, "GET", shell("sleep 600", stdin=True), SOCKET) as raw:
            for _ in range(20):
                await raw.write(client_frame(b"\0" + b"x" * 60_000))
            pong, seen = frame(Opcode.PONG, b""), b""
            while seen.count(pong) < 3:
                seen += await raw.read()


async def test_pings_are_answered(box: Stage) -> None:
    async with upgraded(box, "GET", shell("sleep 600"), SOCKET) as raw:
        await raw.write(client_frame(b"hello", Opcode.PING))
        assert frame(Opcode.PONG, b"hello") in await raw.reader.readuntil(b"hello")


# How it ends.


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE  # which whoever adopted it has not looked after yet
    except psutil.NoSuchProcess:
        return False


async def test_a_client_that_leaves_ends_its_command_and_its_children(box: Stage) -> None:
    async with websocket(box, shell("sleep 600 & echo $!; wait"), "v5.channel.k8s.io") as socket:
        child = int((await socket.receive_bytes())[1:])
        assert alive(child)
        assert box.node.execs == 1
    await eventually(lambda: not box.node.execs and not alive(child))


async def test_one_that_is_cut_off_ends_its_command_too(box: Stage) -> None:
    async with upgraded(box, "GET", shell("sleep 600"), SOCKET):
        await eventually(lambda: box.node.execs == 1)
    await eventually(lambda: not box.node.execs)


async def test_one_that_is_cut_off_while_nobody_reads_it(tmp_path: Path) -> None:
    async with stage(tmp_path, StreamLimits(quiet=0.05)) as box:
        await box.pod()
        async with upgraded(box, "GET", shell("sleep 600", stdin=True), SOCKET) as raw:
            for _ in range(20):
                await raw.write(client_frame(b"\0" + b"x" * 60_000))
            await eventually(lambda: box.node.execs == 1)
        await eventually(lambda: not box.node.execs)


async def test_one_that_breaks_the_protocol(box: Stage) -> None:
    async with upgraded(box, "GET", shell("sleep 600"), SOCKET) as raw:
        await raw.write(frame(Opcode.BINARY, b"\0not masked"))
        got = b""
        while data := await raw.read():
            got += data
    assert frame(Opcode.CLOSE, (1002).to_bytes(2, "big") + b"a frame is not masked") in got
    await eventually(lambda: not box.node.execs)


async def test_one_over_which_nothing_passes(tmp_path: Path) -> None:
    async with stage(tmp_path, StreamLimits(idle=0.2, quiet=0.05)) as box:
        await box.pod()
        async with upgraded(box, "POST", shell("sleep 600"), spdy_headers("v4.channel.k8s.io")) as raw:
            while await raw.read():  # our own signs of life do not count
                pass
        await eventually(lambda: not box.node.execs)


async def test_the_server_stops_at_once(tmp_path: Path) -> None:
    async with stage(tmp_path) as box:
        await box.pod()
        async with upgraded(box, "GET", shell("sleep 600"), SOCKET) as raw:
            await eventually(lambda: box.node.execs == 1)
            async with asyncio.timeout(5):
                await box.server.server.stop()
            assert not box.node.execs
            while await raw.read():
                pass


async def test_no_more_streams_than_allowed(tmp_path: Path) -> None:
    async with stage(tmp_path, StreamLimits(connections=1)) as box:
        await box.pod()
        async with websocket(box, shell("sleep 600"), "v5.channel.k8s.io"):
            await eventually(lambda: box.node.execs == 1)
            answer = await box.server.request("GET", f"{PODS}/box/log")
            assert (answer.status, answer.json["reason"]) == (429, "TooManyRequests")
        await eventually(lambda: not box.node.execs)
        assert (await box.server.request("GET", f"{PODS}/box/log")).status == 200


async def test_streams_of_a_tenant_leave_room_for_others(tmp_path: Path) -> None:
    async with stage(tmp_path, StreamLimits(connections=2)) as box:
        await box.pod()
        await box.server.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "user"}})
        made = await box.server.request("POST", "/api/v1/namespaces/default/serviceaccounts/user/token", {"spec": {}})
        token = made.json["status"]["token"]
        sent = {"Authorization": f"Bearer {token}"}
        async with box.server.session.get(f"{box.server.url}{PODS}/box/log?follow=true", headers=sent) as first:
            assert first.status == 200
            refused = await box.server.request("GET", f"{PODS}/box/log", token=token)
            assert refused.status == 429
            assert 'namespace "default" has 1 and may have 1 of the 2' in refused.json["message"]
            assert (await box.server.request("GET", f"{PODS}/box/log")).status == 200


# Attach.


async def test_attach_and_leave(tmp_path: Path) -> None:
    async with stage(tmp_path) as box:
        await box.pod(script="while read line; do echo got $line; done")
        for word in (b"one", b"two"):
            path = "box/attach?" + query(stdin=True, stdout=True)
            async with websocket(box, path, "v5.channel.k8s.io") as socket:
                await socket.send_bytes(b"\0" + word + b"\n")
                assert await socket.receive_bytes() == b"\1got " + word + b"\n"


async def test_attach_until_the_container_ends(tmp_path: Path) -> None:
    async with stage(tmp_path) as box:
        await box.pod(script="read line; exit 9")
        async with websocket(box, "box/attach?" + query(stdin=True), "v4.channel.k8s.io") as socket:
            await socket.send_bytes(b"\0go\n")
            assert (await heard(socket)).status["status"] == "Success"
