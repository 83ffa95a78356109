"""Sandboxes on gVisor's kernel: what those of namespaces can do, and what only they are."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import sandpool
from sandpool.base.errors import NodeError
from sandpool.node.backend import Unsupported
from sandpool.node.runtimes.contract import ExecPlan, Limits, Mount, Stdio
from support.node import runsc
from support.node.gvisor_bench import opened, skip_unless_it_works
from support.node.sandbox_scenarios import SCENARIOS
from support.node.sandboxes import FOREVER, Bench, say, script_in, shell, until

TESTS, SOURCE = str(Path(__file__).parents[2]), str(Path(sandpool.__file__).parents[1])
OFTEN = (
    "a_command_gets_what_it_was_given",
    "kill_ends_a_tree_that_left_the_group",
    "layers_cover_each_other",
    "the_only_way_out_is_the_egress_socket",
    "files_and_the_writable_layer_are_limited",
)
RARELY = (
    "exec_runs_beside_the_command",
    "a_killed_container_ends_its_commands",
    "a_read_only_root_is_one",
    "a_signal_shows_in_the_end",
    "a_command_inherits_no_files",
    "users_are_those_of_the_image",
    "signals_reach_the_whole_group",
    "everything_ends_with_the_command",
    "nothing_is_left_of_what_was_destroyed",
    "software_can_be_installed_in_the_private_layer",
    "links_below_a_volume_are_not_followed",
    "a_sandbox_can_be_paused",
    "use_is_counted",
    "a_sandbox_goes_on_without_its_fork_server",
    "boxd_is_not_there_unless_it_is_given",
)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    await skip_unless_it_works(tmp_path)
    async with opened(tmp_path / "bench", f"gv{os.getpid()}") as bench:
        yield bench


@pytest.mark.parametrize("name", [*OFTEN, *(pytest.param(name, marks=pytest.mark.long) for name in RARELY)])
async def test_scenario(name: str, bench: Bench) -> None:
    await SCENARIOS[name](bench)


async def test_it_is_another_kernel(bench: Bench) -> None:
    async with bench.sandbox() as sandbox:
        said = await say(sandbox, "cat /proc/version; dmesg; ls -A /egress /volumes /state 2>&1")
        assert Path("/proc/version").read_text() not in said.text
        assert "gVisor" in said.text
        assert said.text.count("No such file or directory") == 3
        container = await sandbox.start(shell(FOREVER, attempt=1), Stdio())
        with pytest.raises(Unsupported):
            await container.connect()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_on_the_machine_it_is_nobody_who_sees_nothing(bench: Bench) -> None:
    async with bench.sandbox() as sandbox:
        await sandbox.start(shell(FOREVER), Stdio())
        server = psutil.Process((await bench.runtime.runtime_host.living_server()).pid)
        mine = [each for each in server.children(recursive=True) if "runsc" in " ".join(each.cmdline()[:1])]
        assert len(mine) >= 3  # the kernel, and one gofer for each container
        for process in mine:
            assert all(uid > 1 << 20 for uid in process.uids()), process
            for path in (bench.folder, Path("/boot"), Path("/etc/shadow")):
                assert not Path(f"/proc/{process.pid}/root{path}").exists(), path


async def test_containers_share_loopback_and_volumes_but_no_processes(bench: Bench) -> None:
    mounts = (Mount("/mem", volume="shared", size=1 << 20),)
    server = "import socket; s = socket.create_server(('127.0.0.1', 8080)); open('/mem/up', 'w')\nwhile 1: s.accept()[0].sendall(b'hi')"
    async with bench.sandbox() as sandbox:
        await sandbox.start(shell("", name="one", argv=("python3", "-c", server), mounts=mounts), Stdio())
        two = await sandbox.start(shell(FOREVER, name="two", mounts=mounts), Stdio())
        said = await script_in(
            two, "while ! [ -e /mem/up ]; do sleep 0.01; done; cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
        )
        assert "create_server" not in said.text
        ask = "import socket; print(socket.create_connection(('127.0.0.1', 8080)).recv(9))"
        assert (await script_in(two, f'python3 -c "{ask}"')).text == "b'hi'\n"
        with await sandbox.dial(8080) as connection:
            assert await asyncio.get_running_loop().sock_recv(connection, 9) == b"hi"
        with pytest.raises(NodeError) as refused:
            await sandbox.dial(8081)
        assert (refused.value.reason, "8081" in refused.value.message) == ("ConnectionRefused", True)


async def test_many_commands_at_once_are_not_mistaken_for_each_other(bench: Bench) -> None:
    async with bench.container() as container:
        many = await asyncio.gather(*(script_in(container, f"echo {number}; exit {number}") for number in range(20)))
    assert [(said.text, said.code) for said in many] == [(f"{number}\n", number) for number in range(20)]


async def test_what_cannot_be_started_is_told(bench: Bench) -> None:
    async with bench.sandbox() as sandbox:
        running = await sandbox.start(shell(FOREVER), Stdio())
        for argv in (("nosuchprogram",), ("/nowhere/x",), ("/etc/passwd",), ("/usr",), (), ("sh", "a\0b")):
            plan = replace(shell("", name="second"), argv=argv)
            for start in (running.exec(ExecPlan(argv), Stdio()), sandbox.start(plan, Stdio())):
                with pytest.raises(NodeError) as refused:
                    await start
                assert refused.value.reason == "StartError", (argv, refused.value)
                assert "runsc" not in refused.value.message
        assert (await script_in(running, "echo fine")).text == "fine\n"


@pytest.mark.parametrize(
    ("limits", "script", "why"),
    [
        (Limits(memory=64 << 20), "x = b'x' * 400_000_000; print('eaten')", "out of memory"),
        (Limits(pids=40), "import os\nwhile True:\n try: os.fork()\n except OSError: pass", "limit of processes"),
    ],
    ids=["memory", "processes"],
)
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_a_limit_of_the_machine_ends_the_whole_sandbox(
    limits: Limits, script: str, why: str, bench: Bench
) -> None:
    missing = {"memory", "pids"} - set(bench.runtime.runtime_host.cgroups.places)
    if missing:
        pytest.skip(f"no control group of {missing} can be made here")
    async with bench.sandbox(limits=limits) as sandbox:
        other = await sandbox.start(shell(FOREVER, name="other"), Stdio())
        said = await say(sandbox, "", argv=("python3", "-c", script))
        assert (said.ended.code, said.ended.oom, said.text) == (137, why == "out of memory", "")
        assert why in said.ended.message
        assert (await other.ended).code == 137
        with pytest.raises(NodeError) as refused:
            await sandbox.start(shell("true", attempt=1), Stdio())
        assert refused.value.reason == "SandboxGone"
    async with bench.sandbox(limits=limits) as sandbox:
        assert (await say(sandbox, "echo anew")).text == "anew\n"


async def test_nothing_outlives_the_main_process(tmp_path: Path) -> None:
    await skip_unless_it_works(tmp_path)
    folder = tmp_path / "victim"
    folder.mkdir()
    argv = [sys.executable, "-m", "support.node.gvisor_user", str(folder), f"death{os.getpid()}-", "forever"]
    environment = {"PYTHONPATH": f"{SOURCE}:{TESTS}", "PATH": os.environ["PATH"], "SANDPOOL_RUNSC": str(runsc.path())}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE) as victim:
        assert victim.stdout is not None
        try:
            server = psutil.Process(int(victim.stdout.readline()))
            everybody = [server, *server.children(recursive=True)]
            assert sum("runsc" in " ".join(each.cmdline()[:1]) for each in everybody) >= 3
        finally:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
    await until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in everybody))
    async with opened(folder, f"death{os.getpid()}-{os.geteuid()}") as bench:  # and the next one takes the rest away
        for place in bench.runtime.runtime_host.cgroups.places.values():
            assert not [path for path in Path(place.directory).iterdir() if path.is_dir()]
