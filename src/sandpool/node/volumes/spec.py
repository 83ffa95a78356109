"""Volumes of a pod: their specification with all references resolved, the resulting volume, the `Volumes` contract and its options."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class EmptyDir:
    """A volume that lives as long as its pod."""

    memory: bool = False  # on tmpfs
    size: int | None = None  # bytes


@dataclass(frozen=True, slots=True)
class Content:
    """Files whose content comes from the API: a configMap, a secret, the downward API, or several of them projected together."""

    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # by relative path
    mode: int = 0o644
    modes: Mapping[str, int] = field(default_factory=dict)  # of files that have their own mode
    secret: bool = False  # kept in memory, never on disk


@dataclass(frozen=True, slots=True)
class Claim:
    """A persistent volume claim, identified by its uid: one that is re-created under the same name has a new directory."""

    namespace: str
    name: str
    uid: str
    size: int | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class HostPath:
    """A path of this machine."""

    path: str
    type: str = ""  # as in Kubernetes: Directory, DirectoryOrCreate, File, FileOrCreate, Socket; empty: any type


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    """One entry of a pod's `volumes`."""

    name: str
    source: EmptyDir | Content | Claim | HostPath


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume that exists. A tmpfs has no path: the runtime creates it inside the sandbox, once per pod."""

    name: str
    path: Path | None = None
    within: Path | None = (
        None  # a directory above `path`, below which sandboxes can create links. None: `path` is no link, and only we can change its parent
    )
    tmpfs_size: int | None = None
    read_only: bool = False
    enforced: bool = True  # whether the machine enforces its size; if not, a note of the pod says so
    image: Path | None = None  # the file system image that backs it, if any
    note: str = ""  # what the user should know about it


class Volumes(Protocol):
    """The volume service of the node."""

    async def make(
        self, uid: str, specs: Sequence[VolumeSpec], *, group: int | None = None, tenant: str = ""
    ) -> Mapping[str, Volume]:
        """Creates the volumes of pod `uid` in namespace `tenant`; returns them by name. Volumes from an earlier run of the same pod are kept, and
        their content is brought up to date. `group` is the pod's fsGroup, as numbered inside the pod: new files belong to it where we are
        allowed to set it. If this raises, it may be called again; `remove` removes what exists by then."""
        ...

    async def refresh(self, uid: str, specs: Sequence[VolumeSpec]) -> None:
        """Replaces the files of the content volumes in `specs`, atomically for each volume. Running sandboxes see the new files. Volumes of other
        kinds, and pods without volumes here, are ignored."""
        ...

    async def remove(self, uid: str) -> None:
        """Removes the volumes of the pod, but keeps its claims. No sandbox may have them mounted any more."""
        ...

    async def remove_claim(self, uid: str) -> None:
        """Removes the directory of a claim whose object is gone. Its pods must be gone, too."""
        ...

    async def reap(self, pods: Collection[str], claims: Collection[str] | None = None) -> None:
        """Call once at the start: removes volumes of pods that are not in `pods` and, if `claims` is given, of claims that are not in it. They are
        moved away when this returns, and deleted in the background."""
        ...

    async def close(self) -> None:
        """The last call, when no sandbox has anything mounted any more. Waits for running operations; directories on disk stay."""
        ...


MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class VolumeOptions:
    """The operator's settings for volumes."""

    host_paths: tuple[Path, ...] = ()  # directories of this machine that pods may mount, with everything below
    memory_size: int = 256 * MIB  # size of an emptyDir in memory that specifies none
    images: bool = False  # as root: back each volume that has a size by a file system image of that size
    memory: tuple[Path, ...] | None = None  # directories in memory for secrets; None: the machine's usual ones
