"""What the containers of a pod share: its folder, sandbox, volumes and address. Made piece by piece, taken away in reverse."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sandpool.base.errors import NodeError
from sandpool.node.backend import BackendError, Workload
from sandpool.node.network.port import Attached
from sandpool.node.pods.parts import Parts
from sandpool.node.pods.plan import sandbox_plan, wanted
from sandpool.node.pods.threads import unbroken
from sandpool.node.runtimes.contract import Sandbox
from sandpool.node.volumes.spec import Content, Volume, VolumeSpec


class Room:
    """What it makes of the workload it does not keep: once the files of volumes are written, their bytes are not needed any more."""

    def __init__(self, workload: Workload, parts: Parts) -> None:
        self.workload = workload
        self._parts = parts
        self.folder = parts.folders.of(workload.uid)
        self._sandbox: Sandbox | None = None
        self._attached: Attached | None = None
        self._unheld = ""
        self.address = ""  # once there is one, it stays, also while a lost sandbox is replaced
        self.volumes: Mapping[str, Volume] | None = None
        self._egress: socket.socket | None = None
        self.proxy_port: int | None = None
        self.stop_signals: dict[str, int] = {}

    @property
    def made(self) -> bool:
        return self._sandbox is not None and self._attached is not None and self.volumes is not None

    @property
    def notes(self) -> tuple[str, ...]:
        volumes = self.volumes or {}
        mine = tuple(note for note in (self._unheld, *(volume.note for volume in volumes.values())) if note)
        return mine if self._attached is None else (*self._attached.notes, *mine)

    def there(self) -> Sandbox:
        if self._sandbox is None:
            raise BackendError(
                "NotRunning", f"pod {self.workload.key} does not run yet, or not any more; look at its status"
            )
        return self._sandbox

    async def make(self) -> None:
        """What is there already is left as it is."""
        if self.volumes is None:
            specs, group = self.workload.volumes, self.workload.spec.security_context.fs_group
            self.volumes = await self._parts.volumes.make(self.workload.uid, specs, group=group)
            if specs:
                self.workload = replace(self.workload, volumes=tuple(map(_written, specs)))
        if self._sandbox is None:
            await unbroken(self._make_sandbox())
        if self._attached is None:
            await unbroken(self._attach())

    async def _make_sandbox(self) -> None:
        try:
            await self._parts.around.threads.run(self.folder.make)
        except OSError as error:
            raise NodeError("CreatePodSandboxError", f"the folder of the pod cannot be made: {error}") from error
        plan = sandbox_plan(self.workload, self.folder.sandbox, self._parts.options)
        self._sandbox = await self._parts.runtime.create(plan)
        self._unheld = self._parts.runtime.unheld(plan.limits)
        self._egress = self._sandbox.take_egress()
        self.proxy_port = None if self._egress is None else plan.egress_port

    async def _attach(self) -> None:
        request = wanted(self.workload)
        if self.address:
            request = replace(request, address=self.address)
        self._attached = await self._parts.network.attach(request, self.there().dial)
        self.address = self._attached.address
        if self._egress is not None:
            egress, self._egress = self._egress, None
            self._attached.serve_egress(egress)

    def relabel(self, labels: Mapping[str, str]) -> None:
        self.workload = replace(self.workload, labels=dict(labels))  # for when it is attached anew
        if self._attached is not None:
            self._attached.relabel(labels)

    async def refresh(self, volumes: Sequence[VolumeSpec]) -> None:
        """Only what is there is brought up to date. A volume that is made later, or anew, is as it was ordered at the start."""
        if self.volumes is not None:
            await self._parts.volumes.refresh(self.workload.uid, volumes)

    async def empty(self) -> None:
        """Nothing runs any more and nothing listens. NodeError if something could not be ended; it may be tried again."""
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
        """After `empty`: all but logs and claims is given back. It may be tried again."""
        await self._give_back(self.folder.keep_logs)
        self.volumes = None
        self._unheld = self.address = ""

    async def remove(self) -> None:
        await self._give_back(self.folder.remove)

    async def _give_back(self, remove: Callable[[], None]) -> None:
        # Nothing is started from it any more, and whoever still looks at an ended pod must not keep what it was given.
        self.workload = replace(self.workload, env={}, volumes=(), credentials=())
        await self._parts.volumes.remove(self.workload.uid)
        self._parts.images.release(self.workload.holder)
        try:
            await self._parts.around.threads.run(remove)
        except OSError as error:
            raise NodeError("RemoveFailed", f"the folder of the pod cannot be removed: {error}") from error


def _written(spec: VolumeSpec) -> VolumeSpec:
    """A volume as it is known after it was made: without what is in its files."""
    return replace(spec, source=replace(spec.source, files={})) if isinstance(spec.source, Content) else spec
