"""Attempts through boxd, which serves files to whoever owns the sandbox: what is inside must not be able to misuse it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import sandpool
from sandpool.base.errors import NodeError
from sandpool.node.runtimes.contract import ExecPlan, Stdio
from support.escape.box import Box, a_box, captured
from support.escape.volumes import SWAP
from support.escape.world import World
from support.network.boxd_daemon import boxd

FILES = "/box/v1/files"
# boxd is the one, beside pid 1, that cannot be looked into.
KILL = """
import os
for name in os.listdir("/proc"):
    if name.isdigit() and name != "1":
        try: os.readlink(f"/proc/{name}/exe")
        except PermissionError: os.kill(int(name), 9); print("killed")
"""
ROUNDS = 60
# A module of every name that an interpreter might still want, in every place where it would look.
PLANT = """
import os, sys
names = [name for name in sys.stdlib_module_names if name.isidentifier()] + ["sandpool"]
deeper = ["concurrent/futures/thread", "encodings/idna", "encodings/ascii", "encodings/latin_1", "encodings/unicode_escape",
          "asyncio/subprocess", "asyncio/threads", "email/utils", "http/cookies", "sandpool/boxd/late", "json/scanner"]
for place in sys.argv[1:]:
    for name in (*names, *deeper):
        path = f"{place}/{name}.py"
        try: os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError: continue
        if not os.access(os.path.dirname(path), os.W_OK): continue
        if not os.path.exists(path):
            with open(path, "w") as file: file.write(f"open('/tmp/planted', 'a').write({name!r} + '\\\\n')\\n")
"""

EVERYTHING = (
    ("GET", "/box/v1/health", b""),
    ("PUT", f"{FILES}/tmp/made/file", b"words"),
    ("GET", f"{FILES}/tmp/made/file", b""),
    ("GET", f"{FILES}/tmp/made?list=true", b""),
    ("GET", f"{FILES}/tmp/made?tar=true", b""),
    ("POST", f"{FILES}/tmp/made/file?move=/tmp/made/other", b""),
    ("DELETE", f"{FILES}/tmp/made?recursive=true", b""),
    ("POST", "/box/v1/processes", json.dumps({"argv": ["true"], "detach": True}).encode()),
    ("POST", "/box/v1/processes", json.dumps({"shell": "exit 3", "detach": True, "timeout": 5}).encode()),
    ("POST", "/box/v1/processes", json.dumps({"argv": ["tty"], "detach": True, "terminal": {"cols": 80}}).encode()),
    ("GET", "/box/v1/processes", b""),
    ("POST", "/execute", json.dumps({"command": "echo words"}).encode()),
)


def links(world: World) -> dict[str, str]:
    secret = str(world.files.secret)
    return {
        "absolute": secret, "relative": "../" * 30 + secret.lstrip("/"), "by_process": f"/proc/1/root{secret}",
        "by_itself": f"/proc/self/root{secret}", "by_folder": f"/proc/self/cwd/{'../' * 20}{secret.lstrip('/')}",
        "folder": str(world.files.folder), "environment": "/proc/self/environ", "command": "/proc/self/cmdline",
        "memory": "/proc/self/mem", "of_init": "/proc/1/environ", "maps": "/proc/1/mem",
    }  # fmt: skip


async def links_followed_by_boxd(world: World) -> None:
    async with a_box(world) as box:
        made = "".join(f"os.symlink({to!r}, {f'/tmp/{name}'!r})\n" for name, to in links(world).items())
        assert await box.python(f"import os\n{made}") == (0, "")
        for name in links(world):
            for query in ("", "?tar=true", "?list=true", "?stat=true"):
                _, body = await box.ask("GET", f"{FILES}/tmp/{name}{query}")
                assert world.token.encode() not in body, (name, query)
            await box.ask("PUT", f"{FILES}/tmp/{name}", b"written by boxd")
        for path in (
            str(world.files.secret),
            f"/..{world.files.secret}",
            f"/%2e%2e/%2e%2e{world.files.secret}",
            "/proc/self/environ",
        ):
            _, body = await box.ask("GET", f"{FILES}{path}")
            assert world.token.encode() not in body, path
        assert (await box.ask("GET", "/box/v1/health"))[0] == 200
    with boxd(Path("/")) as daemon:  # the proof: without a sandbox around it, the same requests get there
        for path in (str(world.files.secret), f"/proc/self/root{world.files.secret}"):
            assert await asyncio.to_thread(daemon.ask, "GET", f"{FILES}{path}"), path
        answer = await asyncio.to_thread(daemon.ask, "GET", f"{FILES}{world.files.secret}")
        assert world.token.encode() in answer.body


async def archives_unpacked_by_boxd(world: World) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, to in (("a", str(world.files.folder)), ("b", "../../../.." + str(world.files.folder))):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, to
            archive.addfile(link)
        for name in (
            "a/shared/new",
            "b/shared/new",
            "../../../.." + str(world.files.folder / "shared" / "new"),
            str(world.files.folder / "shared" / "new"),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"evil"))
    async with a_box(world) as box:
        await box.ask("PUT", f"{FILES}/tmp/unpacked?tar=true", data.getvalue())
        assert (await box.ask("GET", "/box/v1/health"))[0] == 200


async def a_race_with_boxd_inside(world: World) -> None:
    async with a_box(world) as box:
        await box.python("import os; os.makedirs('/tmp/race/sub'); open('/tmp/race/sub/secret', 'w').write('inner')")
        swapping = asyncio.create_task(box.python(SWAP, "/tmp/race", str(world.files.folder)))
        try:
            await _hammer(world, box)
        finally:
            await box.python("open('/tmp/race/stop', 'w').close()")
            assert await swapping == (0, "swapping\n")
        assert (await box.ask("GET", "/box/v1/health"))[0] == 200


async def _hammer(world: World, box: Box) -> None:
    path = f"{FILES}/tmp/race/sub"
    for number in range(ROUNDS):
        asked = [
            box.ask("GET", f"{path}/secret"), box.ask("GET", f"{FILES}/tmp/race?tar=true"), box.ask("GET", f"{path}?list=true"),
            box.ask("PUT", f"{path}/secret", b"new"), box.ask("PUT", f"{path}/new", b"new"),
            box.ask("DELETE", f"{path}/shared?recursive=true"), box.ask("POST", f"{path}/new?move=/tmp/race/moved-{number}"),
        ]  # fmt: skip
        for _, body in await asyncio.gather(*asked):
            assert world.token.encode() not in body


async def a_race_with_boxd_and_its_root(world: World) -> None:
    """boxd with a folder of the machine as its root, where links really lead out: it holds by itself, too."""
    root = world.folder / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "secret").write_text("inner")
    with boxd(root) as daemon:
        swapper = subprocess.Popen(
            [sys.executable, "-c", SWAP, str(root), str(world.files.folder)], stdout=subprocess.PIPE
        )
        try:
            for _ in range(ROUNDS):
                for method, path, body in (
                    ("GET", "sub/secret", b""),
                    ("PUT", "sub/new", b"x"),
                    ("DELETE", "sub/victim", b""),
                ):
                    answer = await asyncio.to_thread(daemon.ask, method, f"{FILES}/{path}", body or None)
                    assert world.token.encode() not in answer.body
            assert await asyncio.to_thread(_fooled, root / "sub" / "secret", world.token)  # the proof
        finally:
            (root / "stop").touch()
            said, _ = swapper.communicate(timeout=20)
        assert (swapper.returncode, said) == (0, b"swapping\n")
    for left in sorted(root.rglob("*"), reverse=True):
        left.rmdir() if left.is_dir() and not left.is_symlink() else left.unlink()
    root.rmdir()


def _fooled(path: Path, token: str) -> bool:
    """Whether one who opens paths without care gets the secret, sooner or later."""
    for _ in range(200_000):
        try:
            if path.read_text() == token:
                return True
        except OSError:
            continue
    return False


async def boxd_is_ended_and_comes_again(world: World) -> None:
    """It runs as the same user as everything inside, and can be killed there: only the sandbox's owner notices."""
    async with a_box(world) as box:
        assert (await box.ask("GET", "/box/v1/health"))[0] == 200
        assert await box.python(KILL) == (0, "killed\n")
        async with asyncio.timeout(20):
            while True:
                status, _ = await _try(box)
                if status == 200:
                    break
        for junk in (
            b"\0" * 5000,
            b"GET / HTTP/9.9\r\n\r\n",
            b"PUT /box/v1/files/x HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
            b"A" * 100_000,
        ):
            sock = await box.container.connect()
            with sock:
                sock.setblocking(True)
                sock.settimeout(20)
                try:
                    sock.sendall(junk)
                except OSError:
                    pass
        assert (await box.ask("GET", "/box/v1/health"))[0] == 200


async def modules_planted_for_those_who_look_after_the_sandbox(world: World) -> None:
    """Pid 1 and boxd are interpreters that came from outside: what they have not loaded by then they must never load."""
    places = [str(Path(os.__file__).parent), str(Path(sandpool.__file__).parents[1])]
    async with a_box(world) as box:
        assert await box.python(PLANT, *places) == (0, "")
        for method, path, body in EVERYTHING:
            status, said = await box.ask(method, path, body)
            assert status in (200, 201, 204), (method, path, said)
        terminal = await box.container.exec(ExecPlan(("true",), tty=True), Stdio())
        await asyncio.shield(terminal.ended)
        if terminal.terminal is not None:
            os.close(terminal.terminal)
        for argv in ((), ("nosuch",), ("/etc/passwd",), ("sh", "-c", "exit 3")):
            try:
                task = await box.container.exec(ExecPlan(argv, cwd="/tmp"), Stdio())
            except NodeError:
                continue
            await task.signal(9)
            await task.kill()
            await asyncio.shield(task.ended)
        _, planted = await captured(
            lambda out: box.container.exec(
                ExecPlan(("sh", "-c", "cat /tmp/planted 2>/dev/null")), Stdio(None, out, out)
            )
        )
        assert planted == ""
        # The proof: an interpreter that looks in one of these places does load them.
        program = f"import sys; sys.path.insert(0, {places[1]!r}); import queue"
        plain = ("python3", "-S", "-c", program)
        await captured(lambda out: box.container.exec(ExecPlan(plain), Stdio(None, out, out)))
        _, planted = await captured(
            lambda out: box.container.exec(ExecPlan(("cat", "/tmp/planted")), Stdio(None, out, out))
        )
        assert planted.endswith("queue\n"), planted


async def _try(box: Box) -> tuple[int, bytes]:
    try:
        return await box.ask("GET", "/box/v1/health")
    except OSError:
        return 0, b""


SCENARIOS = (
    links_followed_by_boxd, archives_unpacked_by_boxd, a_race_with_boxd_inside, a_race_with_boxd_and_its_root,
    boxd_is_ended_and_comes_again, modules_planted_for_those_who_look_after_the_sandbox,
)  # fmt: skip
