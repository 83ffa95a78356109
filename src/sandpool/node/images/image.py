"""Images as pods use them: where their files are, how to run them, the `Images` contract, and the errors of pulls and imports."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sandpool.base.errors import NodeError


@dataclass(frozen=True, slots=True)
class RootFs:
    """The files of an image. `layers` are read-only directories, lowest first, shared by all pods that use them, by paths without symbolic
    links, because mounting follows none. `host` stands for this machine's own programs (/usr and what it needs of /etc), below all layers.
    """

    layers: tuple[Path, ...] = ()
    host: bool = False


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """How to run the image; a container's spec overrides it."""

    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = ""
    user: str = ""  # name or number, with a group after a colon
    stop_signal: str = ""


@dataclass(frozen=True, slots=True)
class Image:
    """An image that is on this machine."""

    reference: str  # as requested
    id: str  # sha256:... of its config; empty for `host` and for directories
    rootfs: RootFs
    config: ImageConfig = ImageConfig()


@dataclass(frozen=True, slots=True)
class Credential:
    """A login for one registry; never shown."""

    registry: str
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)


class Images(Protocol):
    """The image service of the node."""

    async def take(
        self,
        reference: str,
        *,
        holder: str,
        tenant: str = "",
        policy: str = "",
        credentials: Sequence[Credential] = (),
        progress: Callable[[str], object] = lambda text: None,
    ) -> Image:
        """Returns the image, pulled if needed (`policy`: Always, IfNotPresent, Never, or empty for what the tag implies). It stays as long
        as a holder holds it; the same holder may take it again. Concurrent callers share one pull. `tenant` is charged for the pull. Raises
        NodeError with the reasons of Kubernetes: InvalidImageName, ErrImagePull, ErrImageNeverPull."""
        ...

    async def hold(self, image: str, holder: str) -> None:
        """Holds an image that is there, by its id, for a pod that already runs on it."""
        ...

    def release(self, holder: str) -> None:
        """Drops all holds of this holder. Also call it if `take` failed or was cancelled."""
        ...


def pull_error(reference: str, why: str) -> NodeError:
    return NodeError("ErrImagePull", f"image {reference}: {why}")


def disk_full(reference: str, directory: Path) -> NodeError:
    return pull_error(
        reference,
        f"no space left in {directory}. Free some, for example with `sandpool image prune`; nothing of the image was kept",
    )


def is_disk_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class Unauthorized(Exception):
    """A registry refused these credentials."""


class TransientError(Exception):
    """A failure of the network; a retry may succeed."""
