"""Small real parts for pods: the machine's own image, addresses that nobody listens on, and folders as volumes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.images.image import Credential, Image, ImageConfig, RootFs
from sandpool.node.network.addresses import AddressPool
from sandpool.node.network.contract import Dial, NetworkRequest
from sandpool.node.volumes.spec import Claim, Content, EmptyDir, Volume, VolumeSpec
from sandpool.node.volumes.trash import Trash, empty


@dataclass
class HostImages:
    """Knows `host`, and what a test adds. `gate`, if set, is waited for: a pull that takes its time."""

    known: dict[str, ImageConfig] = field(default_factory=lambda: {"host": ImageConfig()})
    held: dict[str, set[str]] = field(default_factory=dict)
    pulls: int = 0
    gate: asyncio.Event | None = None

    async def take(
        self,
        reference: str,
        *,
        holder: str,
        tenant: str = "",
        policy: str = "",
        credentials: Sequence[Credential] = (),
        progress: Callable[[str], object] = lambda words: None,
    ) -> Image:
        self.pulls += 1
        if self.gate is not None:
            await self.gate.wait()
        if reference not in self.known:
            raise NodeError("ErrImagePull", f"the image {reference!r} is not here")
        self.held.setdefault(holder, set()).add(reference)
        return Image(reference, "", RootFs(host=True), self.known[reference])

    async def hold(self, image: str, holder: str) -> None: ...

    def release(self, holder: str) -> None:
        self.held.pop(holder, None)


class QuietAttached:
    notes: tuple[str, ...] = ()

    def __init__(self, network: QuietNetwork, address: str, labels: Mapping[str, str]) -> None:
        self._network = network
        self.address = address
        self.labels = labels
        self._egress: socket.socket | None = None

    def serve_egress(self, listener: socket.socket) -> None:
        self._egress = listener

    def relabel(self, labels: Mapping[str, str]) -> None:
        self.labels = dict(labels)

    async def close(self) -> None:
        if self._egress is not None:
            self._egress.close()
        self._network.addresses.give_back(self.address)


class QuietNetwork:
    """Gives addresses and listens on none."""

    def __init__(self) -> None:
        self.addresses = AddressPool("127.64.0.0/16")
        self.attached: dict[str, QuietAttached] = {}  # by uid; the last one counts

    async def attach(self, wanted: NetworkRequest, dial: Dial) -> QuietAttached:
        made = QuietAttached(self, self.addresses.take(wanted.address), wanted.labels)
        self.attached[wanted.uid] = made
        return made

    async def close(self) -> None:
        return None


class FolderVolumes:
    """Empty folders and files; no sizes, no memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def make(
        self, uid: str, specs: Sequence[VolumeSpec], *, group: int | None = None, tenant: str = ""
    ) -> Mapping[str, Volume]:
        return {spec.name: self._make(uid, spec) for spec in specs}

    def _make(self, uid: str, spec: VolumeSpec) -> Volume:
        match spec.source:
            case EmptyDir(memory=True, size=size):
                return Volume(spec.name, tmpfs_size=size)
            case Claim(uid=claim):
                path = self._folder / "claims" / claim
            case _:
                path = self._folder / "pods" / uid / spec.name
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
        if isinstance(spec.source, Content):
            for name, data in spec.source.files.items():
                (path / name).write_bytes(data)
        return Volume(spec.name, path)

    async def refresh(self, uid: str, specs: Sequence[VolumeSpec]) -> None:
        for spec in specs:
            if isinstance(spec.source, Content):
                self._make(uid, spec)

    async def remove(self, uid: str) -> None:
        moved = Trash(self._folder / "trash").take(self._folder / "pods" / uid)
        if moved is not None:
            await asyncio.to_thread(empty, moved, lambda: False)

    async def remove_claim(self, uid: str) -> None:
        return None

    async def reap(self, pods: Collection[str], claims: Collection[str] | None = None) -> None:
        return None

    async def close(self) -> None:
        return None
