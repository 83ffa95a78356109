"""What the containers of a pod share: directory, sandbox, volumes and address. Created one by one, removed in reverse order."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.base.shielded import shielded
from sandpool.node.backend import BackendError, Workload
from sandpool.node.network.contract import Attachment
from sandpool.node.pods import notes as kept_notes
from sandpool.node.pods.context import PodContext
from sandpool.node.pods.runtime_plans import sandbox_plan, wanted
from sandpool.node.runtimes.contract import FoundSandbox, Sandbox
from sandpool.node.volumes.spec import Content, Volume, VolumeSpec


class PodSandbox:
    """Keeps the workload without the content of volumes: once their files are written, the bytes are not needed any more."""

    def __init__(self, workload: Workload, context: PodContext) -> None:
        self.workload = workload
        self._context = context
        self.directory = context.directories.of(workload.uid)
        self._sandbox: Sandbox | None = None
        self._attached: Attachment | None = None
        self._unheld = ""
        self._known_notes: tuple[str, ...] = ()
        self.address = ""  # once assigned it stays, also while a lost sandbox is replaced
        self.volumes: Mapping[str, Volume] | None = None
        self._egress: socket.socket | None = None
        self.proxy_port: int | None = None
        self.stop_signals: dict[str, int] = {}

    @property
    def made(self) -> bool:
        return self._sandbox is not None and self._attached is not None and self.volumes is not None

    @property
    def notes(self) -> tuple[str, ...]:
        if self._known_notes:
            return self._known_notes
        volumes = self.volumes or {}
        mine = tuple(note for note in (self._unheld, *(volume.note for volume in volumes.values())) if note)
        return mine if self._attached is None else (*self._attached.notes, *mine)

    def require(self) -> Sandbox:
        if self._sandbox is None:
            raise BackendError(
                "NotRunning", f"pod {self.workload.key} is not running yet, or not any more; check its status"
            )
        return self._sandbox

    async def make(self) -> None:
        """Creates what is missing."""
        if self.volumes is None:
            work, specs = self.workload, self.workload.volumes
            group, tenant = work.spec.security_context.fs_group, work.key.namespace
            self.volumes = await self._context.volumes.make(work.uid, specs, group=group, tenant=tenant)
            if specs:
                self.workload = replace(self.workload, volumes=tuple(map(_written, specs)))
        if self._sandbox is None:
            await shielded(self._make_sandbox())
        if self._attached is None:
            await shielded(self._attach())

    async def _make_sandbox(self) -> None:
        try:
            await self._in_threads(self.directory.make)
        except OSError as error:
            raise NodeError("CreatePodSandboxError", f"the directory of the pod cannot be created: {error}") from error
        plan = sandbox_plan(self.workload, self.directory.sandbox, self._context.options)
        self._sandbox = await self._context.runtime.create(plan)
        self._unheld = self._context.runtime.unheld(plan.limits)
        self._sandbox.keep(kept_notes.POD, kept_notes.pod_note(self.workload))
        self._egress = self._sandbox.take_egress()
        self.proxy_port = None if self._egress is None else plan.egress_port

    async def take_over(self, found: FoundSandbox[Sandbox], known: kept_notes.KnownPod) -> None:
        """Takes a running sandbox over. Its volumes follow with `complete`; until then it shows the notes that it had."""
        self._sandbox = found.sandbox
        self._egress = found.sandbox.take_egress()
        self.proxy_port = None if self._egress is None else found.plan.egress_port
        self.address, self.stop_signals, self._known_notes = known.address, dict(known.stop_signals), known.notes
        self.volumes = {}
        await shielded(self._attach())

    async def complete(self, workload: Workload) -> None:
        """Gives a sandbox that was taken over what only the API knows."""
        group, tenant = workload.spec.security_context.fs_group, workload.key.namespace
        self.volumes = await self._context.volumes.make(workload.uid, workload.volumes, group=group, tenant=tenant)
        self.workload = replace(workload, volumes=tuple(map(_written, workload.volumes)))
        plan = sandbox_plan(self.workload, self.directory.sandbox, self._context.options)
        self._unheld, self._known_notes = self._context.runtime.unheld(plan.limits), ()

    async def _attach(self) -> None:
        request = wanted(self.workload)
        if self.address:
            request = replace(request, address=self.address)
        self._attached = await self._context.network.attach(request, self.require().dial)
        self.address = self._attached.address
        if self._egress is not None:
            egress, self._egress = self._egress, None
            self._attached.serve_egress(egress)

    def relabel(self, labels: Mapping[str, str]) -> None:
        self.workload = replace(self.workload, labels=dict(labels))  # for the next attach
        if self._sandbox is not None:
            self._sandbox.keep(kept_notes.POD, kept_notes.pod_note(self.workload))
        if self._attached is not None:
            self._attached.relabel(labels)

    async def refresh(self, volumes: Sequence[VolumeSpec]) -> None:
        """Updates only volumes that exist. A volume that is created later, or again, has the content of the start."""
        if self.volumes is not None:
            await self._context.volumes.refresh(self.workload.uid, volumes)

    async def empty(self) -> None:
        """Ends all processes and listeners. NodeError if something could not be ended; it may be tried again."""
        if self._sandbox is not None:
            await self._sandbox.destroy()
            self._sandbox = None
        await self.detach()

    async def detach(self) -> None:
        if self._egress is not None:
            self._egress.close()
            self._egress = None
        if self._attached is not None:
            attached, self._attached = self._attached, None
            await attached.close()

    async def reclaim(self) -> None:
        """After `empty`: releases everything but logs and claims. It may be repeated."""
        await self._give_back(self.directory.keep_logs)
        self.volumes = None
        self._unheld = self.address = ""

    async def remove(self) -> None:
        await self._give_back(self.directory.remove)

    async def _in_threads(self, move_away: Callable[[], list[Path]]) -> None:
        """Does something with the pod's directory, and empties what that moved away."""
        threads = self._context.run_context.threads
        await threads.empty(await threads.run(move_away))

    async def _give_back(self, remove: Callable[[], list[Path]]) -> None:
        # Nothing is started from it any more, and a reference to an ended pod must not keep its secrets in memory.
        self.workload = replace(self.workload, env={}, volumes=(), credentials=())
        await self._context.volumes.remove(self.workload.uid)
        self._context.images.release(self.workload.holder)
        try:
            await self._in_threads(remove)
        except OSError as error:
            raise NodeError("RemoveFailed", f"the directory of the pod cannot be removed: {error}") from error


def _written(spec: VolumeSpec) -> VolumeSpec:
    """A volume without the content of its files."""
    return replace(spec, source=replace(spec.source, files={})) if isinstance(spec.source, Content) else spec
