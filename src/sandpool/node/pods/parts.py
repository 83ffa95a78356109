"""What the pods of one backend are made with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sandpool.model.metadata import Uid
from sandpool.node.images.port import Images
from sandpool.node.network.port import Network
from sandpool.node.pods.folders import Folders
from sandpool.node.pods.options import PodsOptions
from sandpool.node.pods.run import Around
from sandpool.node.runtimes.contract import Runtime
from sandpool.node.volumes.port import Volumes


@dataclass(frozen=True, slots=True)
class Parts:
    runtime: Runtime
    images: Images
    volumes: Volumes
    network: Network
    folders: Folders
    around: Around
    changed: Callable[[Uid], object]

    @property
    def options(self) -> PodsOptions:
        return self.around.options
