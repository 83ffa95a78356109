"""What the pods of one backend are made with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sandpool.local.backends.pods.folders import Folders
from sandpool.local.backends.pods.options import PodsOptions
from sandpool.local.backends.pods.run import Around
from sandpool.local.backends.runtime import Runtime
from sandpool.local.images.port import Images
from sandpool.local.network.port import Network
from sandpool.local.volumes.port import Volumes
from sandpool.model.metadata import Uid


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
