"""What must be true of sandboxes for root and for an ordinary user alike: each scenario is given a runtime that is open.

Needs nothing but the standard library and the package, so that it can run as somebody who may read little.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.backend import Unsupported
from sandpool.node.images.image import RootFs
from sandpool.node.runtimes.contract import ExecPlan, Limits, Mount, Stdio
from sandpool.node.runtimes.namespaces.sandbox import NamespaceSandbox
from support.node.sandboxes import FOREVER, Bench, background, execute, opened, say, script_in, shell, until

Scenario = Callable[[Bench], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(body: Scenario) -> Scenario:
    SCENARIOS[body.__name__] = body
    return body


async def refused(what: Awaitable[object]) -> NodeError:
    try:
        await what
    except NodeError as error:
        return error
    raise AssertionError("it was not refused")


# Commands


@scenario
async def a_command_gets_what_it_was_given(bench: Bench) -> None:
    script = 'echo "$0|$WORD|$PWD|$HOSTNAME|$(cat /etc/hostname)|$HOME|$(umask)"; echo err >&2; exit 3'
    async with bench.sandbox(hostname="castle") as sandbox:
        said = await say(sandbox, "", argv=("sh", "-c", script, "name"), env={"WORD": "gr\u00fcn"}, cwd="/var/tmp")
    assert said.text == "name|gr\u00fcn|/var/tmp|castle|castle|/root|0022\nerr\n"
    assert (said.ended.code, said.ended.signal, said.ended.oom) == (3, 0, False)


@scenario
async def a_signal_shows_in_the_end(bench: Bench) -> None:
    said = await bench.said("kill -TERM $$")
    assert (said.ended.code, said.ended.signal) == (143, 15)


@scenario
async def a_command_inherits_no_files(bench: Bench) -> None:
    said = await bench.said("ls /proc/self/fd")
    assert said.text.split() == ["0", "1", "2", "3"]  # 3 is ls's own
    async with bench.container() as container:
        assert (await execute(container, "ls", "/proc/self/fd")).text.split() == ["0", "1", "2", "3"]


@scenario
async def exec_runs_beside_the_command(bench: Bench) -> None:
    async with bench.container("export A=1; exec sleep 1000000", env={"B": "2", "C": "3"}, cwd="/tmp") as container:
        said = await script_in(container, 'echo "$A$B$C|$PWD"; cat; exit 7', env={"C": "4"}, stdin=b"in")
        assert (said.text, said.code) == ("24|/tmp\nin", 7)
        assert (await script_in(container, "pwd", cwd="/usr")).text == "/usr\n"
        many = await asyncio.gather(*(script_in(container, f"echo {number}; exit {number}") for number in range(30)))
        assert [(said.text, said.code) for said in many] == [(f"{number}\n", number) for number in range(30)]


@scenario
async def what_cannot_be_started_is_told_as_a_shell_would(bench: Bench) -> None:
    cases = {
        ("nosuchprogram",): "no such file or directory: 'nosuchprogram'",
        ("/nowhere/x",): "no such file or directory: '/nowhere/x'",
        ("/etc/passwd",): "permission denied: '/etc/passwd' is not executable",
        ("/usr",): "permission denied: '/usr' is not executable",
        (): "there is no command",
        ("sh", "a\0b"): "cannot be passed on",
    }
    async with bench.sandbox() as sandbox:
        running = await sandbox.start(shell(FOREVER), Stdio())
        for argv, words in cases.items():
            error = await refused(running.exec(ExecPlan(argv), Stdio()))
            assert (error.reason, words in error.message) == ("StartError", True), error
            error = await refused(sandbox.start(shell("", name="second", argv=argv or ("",)), Stdio()))
            assert error.reason == "StartError", error
        error = await refused(running.exec(ExecPlan(("true",), cwd="/nowhere"), Stdio()))
        assert "working directory '/nowhere'" in error.message
        error = await refused(sandbox.start(shell("true", name="second", cwd="/nowhere"), Stdio()))
        assert (error.reason, "working directory" in error.message) == ("StartError", True)
        error = await refused(sandbox.start(shell("true", name="second", user="nosuchuser"), Stdio()))
        assert "unable to find user nosuchuser" in error.message
        assert [path.name for path in sandbox.plan.directory.iterdir()] == ["main-0"]  # nothing is left of the others
        assert not running.ended.done()


@scenario
async def users_are_those_of_the_image(bench: Bench) -> None:
    for user, said in (
        ("", "0:0"),
        ("user", "1000:1000"),
        ("1000", "1000:1000"),
        ("7", "7:0"),
        ("7:8", "7:8"),
        ("user:daemon", "1000:1"),
    ):
        assert (await bench.said('echo "$(id -u):$(id -g)"', user=user)).text.strip() == said, user
    assert (await bench.said("touch ~/mine && echo $HOME", user="user")).text == "/home/user\n"


@scenario
async def a_terminal_is_the_sessions_own(bench: Bench) -> None:
    async with bench.sandbox() as sandbox:
        container = await sandbox.start(
            shell("", argv=("sh", "-c", "tty; read x; echo got $x; stty size"), tty=True), Stdio()
        )
        terminal = container.terminal
        assert terminal is not None
        with os.fdopen(terminal, "r+b", buffering=0) as file:
            os.set_blocking(terminal, True)
            import fcntl
            import struct
            import termios

            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
            file.write(b"word\n")
            assert (await container.ended).code == 0
            said = await asyncio.to_thread(file.read, 4096)
        assert said is not None
        assert b"/dev/pts/0" in said
        assert b"got word" in said
        assert b"33 77" in said
    async with bench.container() as running:
        task = await running.exec(ExecPlan(("sh", "-c", "echo $TERM"), tty=True), Stdio())
        assert task.terminal is not None
        with os.fdopen(task.terminal, "r+b", buffering=0) as file:
            assert await asyncio.to_thread(file.read, 4096) == b"xterm\r\n"
            assert (await task.ended).code == 0
        task = await running.exec(ExecPlan(("sleep", "1000"), tty=True), Stdio())
        assert task.terminal is not None
        with os.fdopen(task.terminal, "r+b", buffering=0) as file:
            file.write(b"\x03")  # the terminal turns it into a signal
            assert (await task.ended).signal == signal.SIGINT


# Ending


@scenario
async def signals_reach_the_whole_group(bench: Bench) -> None:
    async with bench.container() as container:
        task = await background(container, "sleep 1001 & sleep 1001")
        await task.signal(signal.SIGTERM)
        assert (await task.ended).signal == signal.SIGTERM
        # The signal was sent to all of them at once; on a busy machine the last one may die a moment after the first.
        left = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q 'sleep 10[0]1'"
        waited = f"for turn in $(seq 200); do {left} || {{ echo gone; exit; }}; sleep 0.05; done"
        assert (await script_in(container, waited)).text == "gone\n"
        await task.signal(signal.SIGTERM)  # nothing happens
        await task.kill()


@scenario
async def kill_ends_a_tree_that_left_the_group(bench: Bench) -> None:
    async with bench.container() as container:
        task = await background(
            container, "(setsid sleep 1002 &) ; setsid sh -c 'sleep 1002; true' & trap '' TERM; sleep 1002; true"
        )
        counting = "n=0; for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline | grep -q '^sleep 1002' && n=$((n+1)); done; echo $n"
        while (await script_in(container, counting)).text.strip() != "3":
            pass
        await task.kill()
        assert (await task.ended).signal == signal.SIGKILL
        while (await script_in(container, counting)).text.strip() not in ("0", "1"):
            pass  # who was given to pid 1 before is nobody's any more; the others are on their way
        assert not container.ended.done()


@scenario
async def everything_ends_with_the_command(bench: Bench) -> None:
    async with bench.sandbox() as sandbox:
        mark = f"100{os.getpid()}"
        said = await say(
            sandbox, f"setsid sleep {mark} > /dev/null 2>&1 & nohup sleep {mark} > /dev/null 2>&1 & exit 5"
        )
        assert said.code == 5
        assert not processes_with(mark)


@scenario
async def a_killed_container_ends_its_commands(bench: Bench) -> None:
    async with bench.container() as container:
        task = await background(container, FOREVER)
        await container.kill()
        assert (await container.ended).code == 137
        assert (await task.ended).code == 137
        await task.signal(9)
        error = await refused(container.exec(ExecPlan(("true",)), Stdio()))
        assert error.reason == "NotRunning"


@scenario
async def a_container_can_be_started_again(bench: Bench) -> None:
    async with bench.sandbox() as sandbox:
        for attempt in range(3):
            said = await say(sandbox, "ls /tmp; touch /tmp/trace; exit 4", attempt=attempt)
            assert (said.text, said.code) == ("", 4)
            assert [path.name for path in sandbox.plan.directory.iterdir()] == [f"main-{attempt}"]


@scenario
async def nothing_is_left_of_what_was_destroyed(bench: Bench) -> None:
    """Also of trees that are too deep to walk and that their owner cannot read."""
    deep = 'python3 -c \'import os\nos.chdir("/tmp")\nfor _ in range(1200): os.mkdir("d"); os.chdir("d")\'; '
    hidden = "mkdir -p /srv/a/b; touch /srv/a/b/c; chmod 0 /srv/a/b; chmod 0 /srv/a; ln -s /etc /srv/link; mkfifo /srv/fifo; "
    async with bench.sandbox() as sandbox:
        assert (await say(sandbox, deep + hidden + "echo ready")).text == "ready\n"
        await sandbox.destroy()
        assert not list(sandbox.plan.directory.iterdir())
        await sandbox.destroy()
        assert (await refused(sandbox.start(shell("true"), Stdio()))).reason == "SandboxGone"


def processes_with(mark: str) -> list[str]:
    """The processes of the whole machine that have it in their command."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if mark.encode() in words:
            found.append(pid)
    return found


# What is seen and what is not


@scenario
async def the_machine_is_not_seen(bench: Bench) -> None:
    script = f"""
    ls {bench.folder} /root/.ssh /etc/shadow /etc/ssh /home/*/.bashrc /var/lib/dpkg /boot /sys/kernel 2>/dev/null
    ls /proc | grep -c '^[0-9]'
    cat /etc/passwd | wc -l
    hostname 2>/dev/null || cat /proc/sys/kernel/hostname
    cat /proc/net/dev | grep -c :
    cat /proc/1/environ /proc/1/maps /proc/1/mem 2>/dev/null | wc -c
    ls /proc/1/fd /proc/1/root 2>/dev/null | wc -l
    cat /proc/keys /proc/kallsyms /proc/timer_list 2>/dev/null | wc -c
    """
    lines = (await bench.said(script)).text.split()
    assert lines[1:] == ["5", "box", "1", "0", "0", "0"], lines
    assert int(lines[0]) < 8, lines


@scenario
async def nothing_can_be_gained(bench: Bench) -> None:
    said = await bench.said("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status")
    for line in said.text.splitlines():
        name, _, value = line.partition(":")
        assert value.strip() == {"NoNewPrivs": "1", "Seccomp": "2"}.get(name, "0" * 16), line
    tries = (
        "mount -t tmpfs x /tmp", "unshare -U true", "unshare -m true", "unshare -r id", "nsenter -t 1 -m true", "chroot / true",
        "echo x > /proc/sys/kernel/hostname", "echo x > /proc/sysrq-trigger", "mknod /tmp/d c 1 3", "touch /dev/x", "hostname x",
        "chown 5 /tmp", "for s in $(seq 1 64); do kill -$s 1; done; sleep 0.1; ! kill -0 1", "cat /dev/kmsg", "dmesg", "umount /proc", "mount -o remount,rw /proc/sys",
        "ulimit -n 1000000", "echo -1000 > /proc/self/oom_score_adj", "setpriv --reuid 5 true", "rmdir /sys/fs/cgroup/x",
    )  # fmt: skip
    script = "; ".join(f"({one}) > /dev/null 2>&1 && echo 'it could: {one}'" for one in tries)
    async with bench.container() as container:
        for text in ((await script_in(container, script)).text, (await bench.said(script)).text):
            assert text == ""
        assert not container.ended.done()


@scenario
async def forbidden_calls_are_refused(bench: Bench) -> None:
    """By number, from a program that knows them; x86_64 and arm64 have these in common."""
    program = """
import ctypes, errno, os, socket, fcntl
libc = ctypes.CDLL(None, use_errno=True)
def tried(name, number, *arguments):
    done = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments])
    print(name, errno.errorcode.get(ctypes.get_errno(), "?") if done < 0 else "DONE")
tried("io_uring_setup", 425, 1, 0); tried("open_tree", 428, -100, 0, 0); tried("fsopen", 430, 0, 0)
tried("clone3", 435, 0, 0); tried("pidfd_getfd", 438, 0, 0, 0); tried("mount_setattr", 442, 0, 0, 0, 0, 0)
x86 = os.uname().machine == "x86_64"
tried("ptrace", 101 if x86 else 117, 0, 0, 0, 0); tried("bpf", 321 if x86 else 280, 0, 0, 0)
tried("keyctl", 250 if x86 else 219, 0, 0); tried("userfaultfd", 323 if x86 else 282, 0)
tried("unshare", 272 if x86 else 97, 0x10000000); tried("setns", 308 if x86 else 268, 0, 0)
tried("clone", 56 if x86 else 220, 0x10000011, 0, 0, 0, 0); tried("perf", 298 if x86 else 241, 0, 0, 0, 0, 0)
tried("personality", 135 if x86 else 92, 0x0040000)
tried("prlimit", 302 if x86 else 261, 1, 7, 0, 0)
for family in (16, 17, 40, 38, 31, 29):
    for kind, protocol in ((socket.SOCK_RAW, 12), (socket.SOCK_DGRAM, 0)):
        if (family, protocol) == (16, 0): continue
        try: socket.socket(family, kind, protocol); print("socket", family, "DONE")
        except OSError as error: print("socket", errno.errorcode[error.errno])
socket.socket(16, socket.SOCK_RAW, 0).close(); socket.socketpair()
try: fcntl.ioctl(0, 0x5412, b"x"); print("TIOCSTI DONE")
except OSError as error: print("TIOCSTI", errno.errorcode[error.errno])
"""
    said = await bench.said("", argv=("python3", "-c", program))
    assert said.code == 0, said.text
    answers = dict(line.rsplit(" ", 1) for line in said.text.splitlines())
    assert answers.pop("clone3") == "ENOSYS"
    assert answers.pop("socket") == "EAFNOSUPPORT"
    assert set(answers.values()) == {"EPERM"}, answers
    assert len(answers) == 16


@scenario
async def software_can_be_installed_in_the_private_layer(bench: Bench) -> None:
    script = "echo '#!/bin/sh\necho mine' > /usr/local/bin/mine && chmod +x /usr/local/bin/mine && mine; rm /usr/bin/env && ls /usr/bin/env"
    async with bench.container() as container:
        assert "mine\n" in (await script_in(container, script)).text
    assert (await bench.said("ls /usr/local/bin/mine /usr/bin/env")).text.splitlines()[-1] == "/usr/bin/env"


@scenario
async def a_read_only_root_is_one(bench: Bench) -> None:
    volume = bench.folder / "kept"
    volume.mkdir()
    script = "touch /x /usr/x /etc/passwd /tmp/x; touch /data/x && echo ok; echo y > /dev/null && echo null"
    said = await bench.said(script + " 2>&1", read_only=True, mounts=(Mount("/data", volume),))
    assert said.text.count("Read-only file system") == 4, said.text
    assert "ok\nnull\n" in said.text


# Volumes


@scenario
async def mounts_are_what_the_plan_says(bench: Bench) -> None:
    folder, file = bench.folder / "folder", bench.folder / "file"
    folder.mkdir()
    (folder / "old").write_text("old")
    file.write_text("content")
    mounts = (
        Mount("/data", folder), Mount("/deep/er/ro", folder, read_only=True), Mount("/etc/conf", file, read_only=True),
        Mount("/dev/termination-log", bench.folder / "log"),
    )  # fmt: skip
    (bench.folder / "log").write_text("")
    (bench.folder / "log").chmod(0o666)
    script = """cat /data/old /deep/er/ro/old /etc/conf; echo new > /data/new; echo no > /deep/er/ro/no
    echo no > /etc/conf; echo last > /dev/termination-log; cp /usr/bin/true /data/true; chmod 4755 /data/true
    grep -E ' (/data|/deep/er/ro) ' /proc/mounts | cut -d' ' -f4"""
    said = await bench.said(script, mounts=mounts)
    assert said.text.startswith("oldoldcontent")
    assert (folder / "new").read_text() == "new\n"
    assert not (folder / "no").exists()
    assert file.read_text() == "content"
    assert (bench.folder / "log").read_text() == "last\n"
    assert said.text.count("nosuid,nodev") == 2
    assert (folder / "new").stat().st_uid == os.geteuid()


@scenario
async def a_volume_in_memory_is_shared_by_the_pod_and_outlives_a_container(bench: Bench) -> None:
    async with bench.sandbox() as sandbox:
        one = (Mount("/mem", volume="cache", size=1 << 20),)
        two = (Mount("/here", volume="cache", size=1 << 20), Mount("/other", volume="more", size=1 << 20))
        assert (
            await say(sandbox, "echo hello > /mem/word; head -c 2000000 /dev/zero > /mem/big", mounts=one)
        ).code != 0
        said = await say(
            sandbox, "cat /here/word; ls /other; grep -c ' /here tmpfs' /proc/mounts", name="second", mounts=two
        )
        assert said.text == "hello\n1\n"
        again = await say(sandbox, "cat /mem/word", mounts=one, attempt=1)
        assert again.text == "hello\n"
    async with bench.sandbox() as sandbox:
        assert (await say(sandbox, "ls /mem", mounts=one)).text == ""


@scenario
async def links_in_an_image_lead_nowhere_outside(bench: Bench) -> None:
    layer, outside, volume = bench.folder / "layer", bench.folder / "outside", bench.folder / "volume"
    for folder in (layer / "sub", outside, volume):
        folder.mkdir(parents=True)
    (layer / "out").symlink_to(outside)
    (layer / "up").symlink_to("../../../../../../../.." + str(outside))
    (layer / "loop").symlink_to("loop")
    (layer / "dangling").symlink_to("/nowhere")
    (layer / "inside").symlink_to("/sub")
    (volume / "f").write_text("v")
    rootfs = RootFs((layer,), host=True)
    said = await bench.said("cat /sub/m/f", rootfs=rootfs, mounts=(Mount("/inside/m", volume),))
    assert said.text == "v"
    for target in ("/out/m", "/up/m", "/loop/m", "/dangling/m", "/dangling"):
        error = await refused(bench.said("true", rootfs=rootfs, mounts=(Mount(target, volume),)))
        assert error.reason in ("InvalidPath", "CreateContainerError"), error
    assert list(outside.iterdir()) == []
    error = await refused(bench.said("true", mounts=(Mount("/a/../../b", volume),)))
    assert error.reason == "InvalidPath"


@scenario
async def links_below_a_volume_are_not_followed(bench: Bench) -> None:
    volume, secret = bench.folder / "vol", bench.folder / "secret"
    (volume / "real").mkdir(parents=True)
    secret.mkdir()
    (volume / "link").symlink_to(secret)
    (volume / "real" / "f").write_text("fine")
    said = await bench.said("cat /m/f", mounts=(Mount("/m", volume / "real", within=volume),))
    assert said.text == "fine"
    error = await refused(bench.said("ls /m", mounts=(Mount("/m", volume / "link", within=volume),)))
    assert error.reason == "CreateContainerError", error
    await refused(bench.said("ls /m", mounts=(Mount("/m", secret, within=volume),)))
    part = Mount("/m", volume, sub_path="real/new/er", make=True)
    assert (await bench.said("stat -c %a /m", mounts=(part,))).text == "777\n"
    assert (volume / "real" / "new" / "er").is_dir()
    for sub in ("link", "link/new", "none"):
        error = await refused(bench.said("ls /m", mounts=(Mount("/m", volume, sub_path=sub, make=sub != "none"),)))
        assert error.reason == "CreateContainerConfigError", error
    assert list(secret.iterdir()) == []


@scenario
async def layers_cover_each_other(bench: Bench) -> None:
    low, high = bench.folder / "low", bench.folder / "high"
    for folder, word in ((low, "low"), (high, "high")):
        folder.mkdir()
        (folder / "word").write_text(word)
        (folder / word).write_text(word)
        (folder / "usr" / "local").mkdir(parents=True)
        (folder / "usr" / "local" / word).write_text(word)
    said = await bench.said(
        "cat /word /low /high /usr/local/low /usr/local/high; rm /word; ls /word", rootfs=RootFs((low, high), host=True)
    )
    assert said.text.startswith("highlowhighlowhigh")
    assert (high / "word").read_text() == "high"


# Network


SERVER = "import socket; s = socket.create_server(({!r}, 8080), family={}); print(flush=True)\nwhile 1:\n c = s.accept()[0]; c.sendall({!r}); c.close()"


async def serving(
    sandbox: NamespaceSandbox, word: bytes, host: str = "127.0.0.1", family: str = "socket.AF_INET"
) -> None:
    reader, writer = os.pipe()
    argv = ("python3", "-c", SERVER.format(host, family, word))
    await sandbox.start(shell("", argv=argv), Stdio(stdout=writer))
    os.close(writer)
    assert await asyncio.to_thread(os.read, reader, 1) == b"\n"
    os.close(reader)


async def heard(sandbox: NamespaceSandbox, port: int = 8080) -> bytes:
    with await sandbox.dial(port) as connection:
        return await asyncio.get_running_loop().sock_recv(connection, 100)


@scenario
async def ports_inside_can_be_dialled_and_nobody_else_has_them(bench: Bench) -> None:
    async with bench.sandbox() as one, bench.sandbox() as two:
        await serving(one, b"one")
        await serving(two, b"two", "::1", "socket.AF_INET6")
        for _ in range(10):
            assert (await heard(one), await heard(two)) == (b"one", b"two")
        assert (await refused(one.dial(8081))).reason == "ConnectionRefused"
        await one.pause()
        assert (await one.dial(8080)).close() is None  # the kernel takes it, whoever sleeps
        await one.resume()


@scenario
async def the_only_way_out_is_the_egress_socket(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        async with bench.sandbox() as sandbox:
            program = f"""
import socket
for address in (("127.0.0.1", {port}), ("::1", {port})):
    try: socket.create_connection(address, 2); print("reached")
    except OSError: pass
c = socket.create_connection(("127.0.0.1", 3128)); c.sendall(b"out"); print(c.recv(9).decode())
"""
            listener = sandbox.take_egress()
            assert listener is not None
            assert sandbox.take_egress() is None
            saying = asyncio.ensure_future(say(sandbox, "", argv=("python3", "-c", program)))
            loop = asyncio.get_running_loop()
            with listener:
                connection, _ = await loop.sock_accept(listener)
                with connection:
                    connection.setblocking(False)
                    assert await loop.sock_recv(connection, 9) == b"out"
                    await loop.sock_sendall(connection, b"answer")
                assert (await saying).text == "answer\n"
        outside.setblocking(False)
        try:
            outside.accept()
            raise AssertionError("somebody came")
        except BlockingIOError:
            pass


# Limits


@scenario
async def processes_are_limited_and_a_fork_bomb_harms_nobody(bench: Bench) -> None:
    bomb = """import os
while True:
    try: os.fork()
    except OSError: pass"""
    async with bench.sandbox(limits=Limits(pids=40)) as sandbox:
        container = await sandbox.start(shell("", argv=("python3", "-c", bomb)), Stdio())
        errors = []
        for _ in range(1000):
            try:
                await (await container.exec(ExecPlan(("/usr/bin/true",)), Stdio())).ended
            except NodeError as error:
                errors.append(error)
                break
        assert errors, "there was always room for one more"
        assert (errors[0].reason, "limit of processes" in errors[0].message) == ("ResourceExhausted", True)
        assert (await sandbox.stats()).processes <= 41
        await container.kill()


@scenario
async def files_and_the_writable_layer_are_limited(bench: Bench) -> None:
    async with bench.sandbox(limits=Limits(files=100, storage=4 << 20)) as sandbox:
        script = (
            "ulimit -n; ulimit -c; head -c 8000000 /dev/zero > /tmp/big; head -c 8000000 /dev/zero > /usr/local/big"
        )
        said = await say(sandbox, script)
        assert said.text.splitlines()[:2] == ["100", "0"]
        assert said.text.count("No space left on device") == 2, said.text


@scenario
async def a_sandbox_can_be_paused(bench: Bench) -> None:
    async with bench.sandbox() as sandbox:
        container = await sandbox.start(shell("i=0; while :; do i=$((i+1)); echo $i > /tmp/n; done"), Stdio())
        await sandbox.pause()
        await sandbox.pause()
        assert (await refused(container.exec(ExecPlan(("true",)), Stdio()))).reason == "Paused"
        before = (await sandbox.stats()).cpu_seconds
        spun = sum(range(2_000_000))  # time passes
        assert spun
        assert (await sandbox.stats()).cpu_seconds - before < 0.02
        await sandbox.resume()
        await sandbox.resume()
        count = int((await script_in(container, "cat /tmp/n")).text or 0)
        await until_more(container, count)
        await sandbox.pause()  # and destroyed while it is


async def until_more(container: object, count: int) -> None:
    while int((await script_in(container, "cat /tmp/n")).text or 0) <= count:  # type: ignore[arg-type]
        await asyncio.sleep(0.01)


@scenario
async def use_is_counted(bench: Bench) -> None:
    async with bench.sandbox() as sandbox:
        script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 1000 & exec sleep 1000"
        container = await sandbox.start(shell(script), Stdio())
        while (await sandbox.stats()).processes != 2:
            await asyncio.sleep(0.01)
        stats = await sandbox.stats()
        assert 0.01 < stats.cpu_seconds < 60
        assert 50_000 < stats.memory_bytes < 50_000_000
        await container.kill()


# When things die


@scenario
async def a_sandbox_goes_on_without_its_fork_server(bench: Bench) -> None:
    async with opened(bench.folder / "own", f"own{os.getpid()}") as own, own.sandbox() as sandbox:
        container = await sandbox.start(shell(FOREVER), Stdio())
        task = await background(container, FOREVER)
        server = await own.runtime.runtime_host.living_server()
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: not server.alive)
        assert (await script_in(container, "echo still here")).text == "still here\n"
        other = await sandbox.start(shell("exit 7", name="other"), Stdio())
        assert (await other.ended).code == 7
        assert not container.ended.done()
        assert not task.ended.done()
        assert (await own.said("echo again")).text == "again\n"
        assert (await own.runtime.runtime_host.living_server()).pid != server.pid


@scenario
async def a_later_process_takes_a_sandbox_over(bench: Bench) -> None:
    """The one that made it is killed; test_takeover.py has the details."""
    folder, name = bench.folder / "left", f"left{os.getpid()}"
    argv = [sys.executable, "-m", "support.node.lasting_victim", str(folder), name]
    env = {"PYTHONPATH": ":".join(sys.path), "PATH": os.environ["PATH"]}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE) as victim:  # of a test
        assert victim.stdout is not None
        _, init = map(int, victim.stdout.readline().split())
        victim.kill()
    async with opened(folder, name, lasting=True) as own:
        (found,) = await own.runtime.find()
        counting, short = found.containers["counting", 0], found.containers["short", 2]
        assert getattr(counting.container, "pid", None) == init
        assert (await script_in(counting.container, "echo still here")).text == "still here\n"  # type: ignore[arg-type]
        os.write(short.files[0], b"\n")
        assert (await short.container.ended).code == 3
        for file in (*counting.files, *short.files):
            os.close(file)
        await found.sandbox.destroy()


@scenario
async def boxd_is_not_there_unless_it_is_given(bench: Bench) -> None:
    async with bench.container() as container:
        try:
            await container.connect()
            raise AssertionError("connected to nobody")
        except Unsupported:
            pass


@scenario
async def the_probe_tells_the_truth(bench: Bench) -> None:
    probe = await bench.runtime.probe()
    assert probe.available, probe
    assert probe.enforced >= {"filesystem", "network", "processes", "capabilities", "seccomp", "pids", "storage"}
    if not bench.root:
        assert "systemd-run" in probe.message


# Only where control groups were given to the user


async def limits_hold_for_a_user_with_control_groups(bench: Bench) -> None:
    probe = await bench.runtime.probe()
    assert probe.enforced >= {"memory", "pids"}, probe
    eat = "x = b'x' * 100_000_000; print('eaten')"
    async with bench.sandbox(limits=Limits(memory=40 << 20)) as sandbox:
        said = await say(sandbox, "", argv=("python3", "-c", eat))
        assert (said.ended.signal, said.ended.oom, said.text) == (9, True, "")
        assert (await sandbox.stats()).memory_bytes < 40 << 20


DELEGATED: dict[str, Scenario] = {"limits_hold": limits_hold_for_a_user_with_control_groups}
