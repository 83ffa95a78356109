"""What only root can have, or only root can see from outside: control groups, ids of its own, the memory of others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandpool.node.runtimes.contract import Limits, Mount, Stdio, User
from sandpool.node.runtimes.namespaces.cgroup_manager import CgroupManager
from sandpool.node.runtimes.namespaces.forked.owners import EACH, FIRST
from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime
from sandpool.node.runtimes.namespaces.runtime_host import RANGES
from sandpool.node.runtimes.namespaces.sandbox import NamespaceSandbox
from support.node.sandboxes import FOREVER, Bench, opened, say, script_in, shell

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with opened(tmp_path, f"root{os.getpid()}") as bench:
        yield bench


def groups_of(bench: Bench) -> CgroupManager:
    return bench.runtime.runtime_host.cgroups


def needs(bench: Bench, *controllers: str) -> None:
    missing = set(controllers) - set(groups_of(bench).places)
    if missing:
        pytest.skip(f"no control group of {missing} can be made here: {groups_of(bench).notes}")


def host_pids(bench: Bench, sandbox: NamespaceSandbox) -> list[int]:
    place = groups_of(bench).places["pids"]
    return [
        int(pid)
        for path in Path(place.directory, sandbox.plan.id).rglob("cgroup.procs")
        for pid in path.read_text().split()
    ]


EAT = "head -c {0} /dev/zero | tail -c {0} > /dev/null"


async def test_the_memory_limit_of_a_pod_ends_who_exceeds_it(bench: Bench) -> None:
    needs(bench, "memory")
    argv = ("python3", "-c", "x = b'x' * 100_000_000; print('eaten')")
    async with bench.sandbox(limits=Limits(memory=40 << 20)) as sandbox:
        said = await say(sandbox, "", argv=argv)
        assert (said.ended.code, said.ended.signal, said.ended.oom, said.text) == (137, 9, True, "")
        again = await say(sandbox, "echo fine", attempt=1)
        assert (again.text, again.ended.oom) == ("fine\n", False)
        container = await sandbox.start(shell(FOREVER, attempt=2), Stdio())
        eater = await script_in(container, EAT.format(100_000_000) + "; echo $?")
        assert eater.text.endswith("137\n")
        assert not container.ended.done()
    async with bench.sandbox(limits=Limits(memory=300 << 20)) as sandbox:
        assert (await say(sandbox, "", argv=argv)).text == "eaten\n"


async def test_a_container_has_limits_of_its_own(bench: Bench) -> None:
    needs(bench, "memory")
    async with bench.sandbox(limits=Limits(memory=400 << 20)) as sandbox:
        small = await say(sandbox, EAT.format(100_000_000), name="small", limits=Limits(memory=40 << 20))
        large = await say(sandbox, EAT.format(100_000_000), name="large", limits=Limits(memory=360 << 20))
        assert (small.code, large.code) == (137, 0)


async def test_processor_time_is_limited(bench: Bench) -> None:
    needs(bench, "cpu")
    place = groups_of(bench).places["cpu"]
    async with bench.sandbox(limits=Limits(cpu=0.25)) as sandbox:
        container = await sandbox.start(shell("while :; do :; done"), Stdio())
        stat = Path(place.directory, sandbox.plan.id, "cpu.stat")
        while not re.search(r"nr_throttled [1-9]", stat.read_text()):  # the kernel itself says that it held it back
            await asyncio.sleep(0.01)
        await container.kill()


async def test_root_inside_is_nobody_outside_and_every_sandbox_somebody_else(bench: Bench) -> None:
    needs(bench, "pids")
    async with bench.sandbox() as one, bench.sandbox() as two:
        owners = []
        for sandbox in (one, two):
            await sandbox.start(shell(FOREVER), Stdio())
            pids = host_pids(bench, sandbox)
            owners.append(
                {os.stat(f"/proc/{pid}/task").st_uid for pid in pids if Path(f"/proc/{pid}/exe").exists()} - {0}
            )
        assert owners == [{one.base}, {two.base}]
        assert one.base != two.base
        assert all(FIRST <= base < FIRST + EACH * RANGES for (base,) in owners)


async def test_a_volume_belongs_to_whom_the_plan_says(bench: Bench, tmp_path: Path) -> None:
    """And what is written keeps its owner over sandboxes, whatever ids these have."""
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o755)
    mount = Mount("/v", volume, owner=User(1000, 2000))
    said = await bench.said("touch /v/f && stat -c %u:%g /v /v/f", user="1000:1000", mounts=(mount,))
    assert said.text == "1000:2000\n1000:1000\n"
    assert (volume / "f").stat().st_uid == 1000
    assert (await bench.said("stat -c %u /v/f", mounts=(Mount("/v", volume),))).text == "1000\n"
    memory = Mount("/m", volume="m", owner=User(1000, 2000))
    assert (await bench.said("touch /m/f; stat -c %u:%g /m", user="1000", mounts=(memory,))).text == "1000:2000\n"


async def test_a_volume_inside_another_one_where_no_place_is_for_it(bench: Bench, tmp_path: Path) -> None:
    """The place is made in the outer volume, owned by the sandbox's root; also where only somebody else may write."""
    outer, inner, file = tmp_path / "outer", tmp_path / "inner", tmp_path / "file"
    outer.mkdir(mode=0o777)
    inner.mkdir(mode=0o777)
    (inner / "there").touch()
    file.write_text("said\n")
    (outer / "theirs").mkdir(mode=0o755)
    os.chown(outer / "theirs", 1000, 1000)
    mounts = (
        Mount("/v", outer),
        Mount("/v/a/b", inner),
        Mount("/v/c/d", file),
        Mount("/v/theirs/e", inner),
        Mount("/v/memory", volume="m"),
    )
    said = await bench.said(
        "ls /v/a/b /v/theirs/e; cat /v/c/d; touch /v/memory/f && stat -c %u:%g /v/a /v/c /v/theirs", mounts=mounts
    )
    assert said.text == "/v/a/b:\nthere\n\n/v/theirs/e:\nthere\nsaid\n0:0\n0:0\n1000:1000\n"
    owners = {name: (outer / name).stat().st_uid for name in ("a", "a/b", "c", "c/d", "theirs/e", "memory")}
    assert set(owners.values()) == {0}, "as the sandbox's root would have made it"


async def test_no_sandbox_knows_the_secrets_of_another(bench: Bench) -> None:
    """Every init is a copy of the fork-server, which must never have seen them."""
    needs(bench, "pids")
    secret = "s3cr3t-" + "abcdef" * 3
    async with bench.sandbox() as one, bench.sandbox() as two:
        container = await one.start(shell(FOREVER, env={"PASSWORD": secret}), Stdio())
        await script_in(container, "true", env={"ANOTHER": secret})
        await two.start(shell(FOREVER), Stdio())
        knowing = [pid for pid in host_pids(bench, one) if remembers(pid, secret.encode())]
        assert knowing, "the search finds nothing at all"
        assert not [pid for pid in host_pids(bench, two) if remembers(pid, secret.encode())]
        server = await bench.runtime.runtime_host.living_server()
        assert server.pid is not None
        child = int(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()[0])
        for pid in (server.pid, child):
            assert not remembers(pid, secret.encode())
            assert Path(f"/proc/{pid}/environ").read_bytes() == b""


def remembers(pid: int, secret: bytes) -> bool:
    regions = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw", Path(f"/proc/{pid}/maps").read_text(), re.MULTILINE)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for begin, end in regions:
            try:
                memory.seek(int(begin, 16))
                if secret in (memory.read(int(end, 16) - int(begin, 16)) or b""):
                    return True
            except (OSError, OverflowError):
                continue
    return False


async def test_control_groups_of_a_dead_process_are_taken_away(bench: Bench, tmp_path: Path) -> None:
    needs(bench, "pids")
    cgroups = groups_of(bench)
    left = [Path(folder) / "left" / "deeper" for folder in {place.directory for place in cgroups.places.values()}]
    for path in left:
        path.mkdir(parents=True)
    probed = [path.parents[1].with_name(f"{cgroups.name}-probe") for path in left]
    for path in probed:
        path.mkdir()
    other = NamespacesRuntime(tmp_path / "other", installation=cgroups.name.removeprefix("sandpool-"))
    await other.open()
    await other.runtime_host.prepared()
    assert not any(path.exists() for path in (*left, *probed))
    for path in left:
        path.mkdir(parents=True)
    again = CgroupManager(cgroups.name)
    again.open(Limits())
    assert not any(path.exists() for path in left)
    assert again.places == cgroups.places


async def test_what_was_made_is_gone_after_close(tmp_path: Path) -> None:
    async with opened(tmp_path, f"gone{os.getpid()}") as bench:
        parents = [Path(place.directory) for place in groups_of(bench).places.values()]
        async with bench.sandbox():
            assert all(path.exists() for path in parents)
            mounts = Path("/proc/self/mountinfo").read_text()
            assert str(tmp_path) not in mounts  # all of them are in namespaces of their own
    assert not any(path.exists() for path in parents)


async def test_an_opening_that_is_given_up_leaves_no_control_group(tmp_path: Path) -> None:
    name = f"given{os.getpid()}"
    runtime = NamespacesRuntime(tmp_path / "runtime", installation=name)
    await runtime.open()
    while not _groups(name):
        await asyncio.sleep(0)
    await runtime.close()
    assert _groups(name) == []


def _groups(name: str) -> list[Path]:
    """Of the whole machine, where those of others come and go meanwhile."""
    top = Path("/sys/fs/cgroup")
    patterns = (f"sandpool-{name}*", f"*/sandpool-{name}*", f"*/*/*/sandpool-{name}*")
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError):
            return [path for pattern in patterns for path in top.glob(pattern)]
    raise AssertionError("the groups of others do not hold still")
