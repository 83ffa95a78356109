"""Sandboxes of the namespaces runtime, for tests: short to start, and always taken away."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sandpool.node.images.image import RootFs
from sandpool.node.runtimes.contract import ContainerPlan, Ended, ExecPlan, Limits, Mount, SandboxPlan, Stdio
from sandpool.node.runtimes.namespaces.container import Command, NamespaceContainer
from sandpool.node.runtimes.namespaces.runtime import NamespacesRuntime
from sandpool.node.runtimes.namespaces.sandbox import NamespaceSandbox

HOST = RootFs(host=True)
FOREVER = "exec sleep 1000000"
PATIENCE = 60


@dataclass(slots=True)
class Said:
    ended: Ended
    text: str

    @property
    def code(self) -> int:
        return self.ended.code


@dataclass(slots=True)
class Bench:
    """One runtime and a folder. Every sandbox has a number of its own."""

    runtime: NamespacesRuntime
    folder: Path
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def root(self) -> bool:
        return os.geteuid() == 0

    @asynccontextmanager
    async def sandbox(
        self, *, limits: Limits = Limits(), hostname: str = "box", tenant: str = ""
    ) -> AsyncIterator[NamespaceSandbox]:
        number = next(self._numbers)
        folder = self.folder / f"sandbox-{number}"
        folder.mkdir()
        plan = SandboxPlan(f"pod-{number}", hostname, folder, limits, tenant=tenant)
        sandbox = await self.runtime.create(plan)
        try:
            yield sandbox
        finally:
            await sandbox.destroy()
            folder.rmdir()  # fails if anything is left

    @asynccontextmanager
    async def container(self, script: str = FOREVER, **more: object) -> AsyncIterator[NamespaceContainer]:
        async with self.sandbox() as sandbox:
            yield await sandbox.start(shell(script, **more), Stdio())  # type: ignore[arg-type]

    async def said(self, script: str, **more: object) -> Said:
        """What a container of a sandbox of its own says until it ends."""
        async with self.sandbox() as sandbox:
            return await say(sandbox, script, **more)


def shell(script: str, *, name: str = "main", argv: tuple[str, ...] = (), rootfs: RootFs = HOST, env: Mapping[str, str] = {},
          cwd: str = "/", user: str = "", read_only: bool = False, mounts: tuple[Mount, ...] = (), limits: Limits = Limits(),
          tty: bool = False, attempt: int = 0, groups: tuple[int, ...] = (), served: bool = False) -> ContainerPlan:  # fmt: skip
    return ContainerPlan(
        name,
        argv or ("sh", "-c", script),
        rootfs,
        env,
        cwd,
        user,
        groups,
        read_only,
        mounts,
        limits,
        tty,
        attempt,
        served,
    )


async def say(sandbox: NamespaceSandbox, script: str, **more: object) -> Said:
    plan = shell(script, **more)  # type: ignore[arg-type]
    return await _captured(lambda writer: sandbox.start(plan, Stdio(None, writer, writer)))


async def execute(
    container: NamespaceContainer, *argv: str, env: Mapping[str, str] = {}, cwd: str = "", stdin: bytes = b""
) -> Said:
    """A command in a running container, to its end."""
    reader, writer = os.pipe()
    os.write(writer, stdin)
    os.close(writer)
    try:
        plan = ExecPlan(argv, env, cwd)
        return await _captured(lambda writer: container.exec(plan, Stdio(reader, writer, writer)))
    finally:
        os.close(reader)


async def _captured(begin: Callable[[int], Awaitable[Command]]) -> Said:
    reader, writer = os.pipe()
    try:
        try:
            task = await begin(writer)
        finally:
            os.close(writer)
        async with asyncio.timeout(PATIENCE):
            ended, text = await asyncio.gather(asyncio.shield(task.ended), asyncio.to_thread(_read_all, reader))
        return Said(ended, text)
    finally:
        os.close(reader)


async def script_in(container: NamespaceContainer, script: str, **more: object) -> Said:
    return await execute(container, "sh", "-c", script, **more)  # type: ignore[arg-type]


async def background(container: NamespaceContainer, script: str) -> Command:
    return await container.exec(ExecPlan(("sh", "-c", script)), Stdio())


def _read_all(file: int) -> str:
    parts = []
    while part := os.read(file, 65536):
        parts.append(part)
    return b"".join(parts).decode(errors="replace")


async def until(true: Callable[[], bool]) -> None:
    """Waits for something in the world that tells nobody."""
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def opened(
    folder: Path, installation: str, entry: tuple[str, ...] | None = None, *, lasting: bool = False
) -> AsyncIterator[Bench]:
    folder.mkdir(exist_ok=True)
    runtime = NamespacesRuntime(folder / "runtime", installation=installation, entry=entry, lasting=lasting)
    await runtime.open()
    try:
        await runtime.runtime_host.prepared()
        yield Bench(runtime, folder)
    finally:
        await runtime.close()
