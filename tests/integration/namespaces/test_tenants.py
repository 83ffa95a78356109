"""The control groups of tenants: what ended sandboxes left in use counts for the tenant, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandpool.base.errors import NodeError
from sandpool.node.runtimes.contract import Limits, Mount, Stdio
from sandpool.node.runtimes.namespaces import tenant_accounts
from sandpool.node.runtimes.namespaces.cgroup_hierarchy import keyed, number
from sandpool.node.runtimes.namespaces.tenant_accounts import SPARE, MemoryLimits
from sandpool.node.runtimes.namespaces.tenant_groups import TenantGroup, unreclaimable
from support.node.sandboxes import Bench, opened, say, shell, until

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]
MIB = 1 << 20
NETWORKS = 20  # about 90 KiB each
TAKE = "import os, time; f = os.memfd_create('x'); [os.write(f, bytes(1 << 20)) for _ in range({})]; os.dup2(f, 77); time.sleep(1000)"
EAT = "x = b'x' * ({} << 20); print('eaten')"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with opened(tmp_path, f"tenants{os.getpid()}") as bench:
        if "memory" not in bench.runtime.runtime_host.cgroups.places:
            pytest.skip("no control group of memory can be made here")
        bench.runtime.runtime_host.tenants.linger = 0.1
        yield bench


def folder_of(bench: Bench, tenant: str) -> Path:
    return Path(bench.runtime.runtime_host.cgroups.places["memory"].directory, f"tenant-{tenant}")


def group_of(bench: Bench, tenant: str) -> TenantGroup:
    return bench.runtime.runtime_host.tenants.groups[tenant]


async def at_rest(bench: Bench, tenant: str) -> TenantGroup:
    """A group whose limit nobody changes but the test."""
    group = group_of(bench, tenant)
    if group.settling is not None:
        await group.settling
    if group.timer is not None:
        group.timer.cancel()
    return group


def drop_caches(group: TenantGroup) -> None:
    """What a program reads first on a machine counts for it, and would make room."""
    file, value = ("memory.force_empty", "0") if group.version == 1 else ("memory.reclaim", "1G")
    with contextlib.suppress(OSError):
        Path(group.directory, file).write_text(value)


def kernel_memory(group: TenantGroup) -> int:
    """Without what the kernel keeps only because nobody needs the room."""
    drop_caches(group)
    if group.version == 1:
        return number(Path(group.directory, "memory.kmem.usage_in_bytes").read_text())
    return keyed(Path(group.directory, "memory.stat").read_text(), "kernel")


def limit_of(bench: Bench, tenant: str) -> int:
    names = ("memory.limit_in_bytes", "memory.max")
    return next(number(file.read_text()) for name in names if (file := folder_of(bench, tenant) / name).exists())


def most(*limits: int) -> int:
    return sum(limits) * MIB + SPARE + sum(limits) * MIB // 8


@contextlib.asynccontextmanager
async def held(bench: Bench, tenant: str, mebibytes: int) -> AsyncIterator[None]:
    """Memory that a sandbox used, and that somebody else still has when it is gone."""
    async with bench.sandbox(limits=Limits(memory=(mebibytes + 28) * MIB), tenant=tenant) as sandbox:
        await sandbox.start(shell("", argv=("python3", "-S", "-c", TAKE.format(mebibytes))), Stdio())
        group = folder_of(bench, tenant) / sandbox.plan.id
        await until(lambda: any(_taken(group)))
        file = os.open(next(_taken(group)), os.O_RDWR)
    try:
        yield
    finally:
        os.close(file)


def _taken(group: Path) -> Iterator[str]:
    for procs in group.rglob("cgroup.procs"):
        for pid in procs.read_text().split():
            if os.path.lexists(f"/proc/{pid}/fd/77"):
                yield f"/proc/{pid}/fd/77"


async def test_a_tenant_may_use_what_its_living_sandboxes_may(bench: Bench) -> None:
    async with bench.sandbox(limits=Limits(memory=64 * MIB), tenant="team"):
        assert limit_of(bench, "team") == most(64)
        buffers = folder_of(bench, "team") / "memory.kmem.tcp.limit_in_bytes"
        assert not buffers.exists() or number(buffers.read_text()) == (8 + 1 + 8) * MIB
        async with (
            bench.sandbox(limits=Limits(memory=512 * MIB), tenant="team") as other,
            bench.sandbox(limits=Limits(memory=64 * MIB), tenant="else"),
        ):
            assert limit_of(bench, "team") == most(64, 512)
            assert limit_of(bench, "else") == most(64)
            assert (await say(other, "echo well")).text == "well\n"
            assert (await other.stats()).memory_bytes is not None
        await until(lambda: limit_of(bench, "team") == most(64))
        async with bench.sandbox(tenant="team"):
            assert limit_of(bench, "team") > 1 << 60
    await until(lambda: not folder_of(bench, "team").exists() and not folder_of(bench, "else").exists())


async def test_what_is_left_takes_from_the_tenant_and_is_said_as_ever(bench: Bench) -> None:
    limits = Limits(memory=100 * MIB)
    async with bench.sandbox(limits=limits, tenant="team") as first, held(bench, "team", 150):
        group = await at_rest(bench, "team")
        await asyncio.to_thread(group.settle, measure=False)
        said = await say(first, "", argv=("python3", "-S", "-c", EAT.format(70)))
        assert (said.ended.oom, said.text) == (True, "")
        async with bench.sandbox(limits=limits, tenant="else") as innocent:
            assert (await say(innocent, "", argv=("python3", "-S", "-c", EAT.format(70)))).text == "eaten\n"
        leftover = await asyncio.to_thread(group.settle, measure=True)
        assert leftover is not None
        assert 149 * MIB < leftover < 160 * MIB
    async with bench.sandbox(limits=limits, tenant="team") as again:
        assert (await say(again, "", argv=("python3", "-S", "-c", EAT.format(70)))).text == "eaten\n"


async def test_files_that_the_kernel_keeps_in_memory_go_where_something_else_is_left(
    bench: Bench, tmp_path: Path
) -> None:
    """Otherwise they stay: somebody may read them again."""
    (tmp_path / "volume").mkdir()
    mount = Mount("/v", tmp_path / "volume")
    async with bench.sandbox(limits=Limits(memory=512 * MIB), tenant="team") as sandbox:
        await say(sandbox, "dd if=/dev/zero of=/v/file bs=1M count=100 conv=fsync", mounts=(mount,))
    group = await at_rest(bench, "team")
    if unreclaimable(group.version, group.directory) > 50 * MIB:
        pytest.skip("files of tests are in memory")
    await asyncio.to_thread(group.settle, measure=True)
    assert group.used().memory > 100 * MIB
    async with held(bench, "team", 40):
        group = await at_rest(bench, "team")
        await asyncio.to_thread(group.settle, measure=True)
        assert 40 * MIB < group.used().memory < 80 * MIB
        assert limit_of(bench, "team") < 112 * MIB


async def test_a_container_that_has_no_room_to_start_says_why(bench: Bench) -> None:
    async with bench.sandbox(limits=Limits(memory=64 * MIB), tenant="team") as sandbox, held(bench, "team", 40):
        group = await at_rest(bench, "team")
        drop_caches(group)
        new = MemoryLimits(group.used().memory + 64 * 1024, group.account.applied.sockets)
        group.write(group.account.applied, new)
        with pytest.raises(NodeError, match=r"'main' ended while it started: out of memory"):
            await sandbox.start(shell("echo"), Stdio())


async def test_who_begins_again_has_the_same_account_as_long_as_something_is_left(bench: Bench) -> None:
    async with held(bench, "team", 40):
        group = group_of(bench, "team")
        await until(lambda: group.account.due is not None and group.account.expired(group.account.due))
        assert not await asyncio.to_thread(group.is_empty)
        async with bench.sandbox(limits=Limits(memory=64 * MIB), tenant="team"):
            assert group_of(bench, "team") is group
    await until(lambda: not folder_of(bench, "team").exists())


async def test_networks_of_ended_sandboxes_that_somebody_holds_count_for_the_tenant(bench: Bench) -> None:
    """One socket that was passed on keeps the whole network namespace."""
    kept: list[int] = []
    try:
        async with bench.sandbox(limits=Limits(memory=64 * MIB), tenant="team"):
            for _ in range(NETWORKS + 1):
                if len(kept) == 1:
                    before = kernel_memory(group_of(bench, "team"))
                async with bench.sandbox(limits=Limits(memory=64 * MIB), tenant="team") as sandbox:
                    kept.append(os.dup(sandbox.living().net))
            assert kernel_memory(group_of(bench, "team")) - before > NETWORKS * 48 * 1024
    finally:
        for file in kept:
            os.close(file)


async def test_what_stays_in_use_is_logged_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tenant_accounts, "MEASURE_INTERVAL", 0.0)
    tenants = bench.runtime.runtime_host.tenants
    async with bench.sandbox(limits=Limits(memory=64 * MIB), tenant="team"), held(bench, "team", 40):
        group = await at_rest(bench, "team")
        for _ in range(3):
            await tenants.lower("team", group)
    (record,) = [each for each in caplog.records if "ended pods" in each.getMessage()]
    assert record.keys["namespace"] == "team"  # type: ignore[attr-defined]
    assert 39 * MIB < record.keys["bytes"] < 48 * MIB  # type: ignore[attr-defined]


async def test_what_a_start_costs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant's first sandbox makes its group. All others write at most a limit, and mostly nothing."""
    written: list[str] = []
    real = TenantGroup.write

    def counted(self: TenantGroup, old: MemoryLimits, new: MemoryLimits) -> None:
        written.append(self.directory)
        real(self, old, new)

    monkeypatch.setattr(TenantGroup, "write", counted)
    tenants = bench.runtime.runtime_host.tenants
    async with bench.sandbox(limits=Limits(memory=512 * MIB), tenant="team"):
        assert len(written) == 1
        assert tenants.enter("team", "second", 512 * MIB) == []
        assert len(written) == 2
        assert tenants.enter("team", "third", 64 * MIB) == []
        assert len(written) == 2
        async with bench.sandbox(limits=Limits(memory=64 * MIB)):  # of nobody
            assert len(written) == 2
        for sandbox in ("second", "third"):
            tenants.leave("team", sandbox)
