"""Who is ended when the buffers of sockets take too much memory, on control groups v1."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from sandpool.node.runtimes.contract import Limits, SandboxPlan
from sandpool.node.runtimes.namespaces.cgroup_hierarchy import ControllerPath
from sandpool.node.runtimes.namespaces.cgroup_settings import SOCKETS
from sandpool.node.runtimes.namespaces.socket_memory import (
    USED,
    SocketMemoryGuard,
    SocketUse,
    TenantUse,
    one_for_all,
    past_their_limit,
)

MIB = 1 << 20


def use(used: int, limit: int) -> SocketUse:
    return SocketUse(used * MIB, limit * MIB)


def test_past_twice_its_limit_or_32_mib_a_sandbox_is_ended() -> None:
    sandboxes = {"small": use(40, 8), "grown": use(41, 8), "large": use(256, 128), "larger": use(257, 128)}
    assert past_their_limit([TenantUse(use(594, 600), sandboxes)]) == ["grown", "larger"]


def test_while_all_have_room_nobody_is_ended_for_others() -> None:
    tenants = [TenantUse(use(70, 40), {"a": use(35, 8), "b": use(35, 8)})]
    assert one_for_all(use(70, 500), tenants) is None


def test_of_a_tenant_that_holds_what_ended_sandboxes_left_one_is_ended() -> None:
    """Though none of them is past its own limit."""
    held = TenantUse(use(200, 80), {"a": use(1, 8), "b": use(4, 8)})
    other = TenantUse(use(300, 290), {"c": use(200, 256)})
    assert one_for_all(use(500, 1000), [held, other]) == "b"


def test_when_all_have_too_much_the_tenant_goes_that_is_furthest_past_its_limit() -> None:
    modest = TenantUse(use(500, 600), {"modest": use(500, 256)})
    many = TenantUse(use(300, 200), {"one": use(20, 8), "two": use(30, 8), "idle": use(0, 256)})
    assert one_for_all(use(800, 500), [modest, many]) == "two"
    assert one_for_all(use(700, 500), [modest, many]) is None


def test_when_nobody_is_past_a_limit_the_largest_goes() -> None:
    small, large = TenantUse(use(300, 600), {"s": use(300, 300)}), TenantUse(use(500, 600), {"l": use(500, 500)})
    assert one_for_all(use(800, 500), [small, large]) == "l"
    assert one_for_all(use(800, 500), [TenantUse(use(800, 100), {})]) is None


@dataclass(eq=False)
class Sandbox:
    plan: SandboxPlan
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    pids: tuple[int, ...] = ()

    def kill_for_memory(self) -> None:
        self.ended.set()

    async def disconnect(self) -> None:
        assert self.ended.is_set()


def a_group(path: Path, used: int, limit: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / USED).write_text(f"{used * MIB}\n")
    (path / SOCKETS).write_text(f"{limit * MIB}\n")


def a_sandbox(path: Path, tenant: str, name: str, used: int) -> Sandbox:
    a_group(path / f"tenant-{tenant}" / name, used, 8)
    plan = SandboxPlan(name, name, path, Limits(memory=64 * MIB), 3128, tenant)
    return Sandbox(plan)


async def test_the_guard_reads_the_groups_and_ends_who_takes_too_much(tmp_path: Path) -> None:
    sandboxes = [a_sandbox(tmp_path, "a", "fits", 30), a_sandbox(tmp_path, "a", "grows", 300)]
    a_group(tmp_path / "tenant-a", 330, 26)
    a_group(tmp_path, 330, 700)
    guard = SocketMemoryGuard(lambda: {"memory": ControllerPath(1, str(tmp_path))}, lambda: sandboxes)
    guard.wake()
    async with asyncio.timeout(5):
        await sandboxes[1].ended.wait()
    await guard.close()
    assert not sandboxes[0].ended.is_set()


async def test_on_version_2_the_kernel_holds_the_limit(tmp_path: Path) -> None:
    sandboxes = [a_sandbox(tmp_path, "a", "grows", 300)]
    a_group(tmp_path / "tenant-a", 330, 26)
    a_group(tmp_path, 330, 700)
    guard = SocketMemoryGuard(lambda: {"memory": ControllerPath(2, str(tmp_path))}, lambda: sandboxes)
    guard.wake()
    await asyncio.sleep(0)
    await guard.close()
    assert not sandboxes[0].ended.is_set()
