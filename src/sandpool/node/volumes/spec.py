"""A pod's volumes after everything that they refer to has been looked up, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EmptyDir:
    memory: bool = False  # on tmpfs
    size: int | None = None  # bytes


@dataclass(frozen=True, slots=True)
class Content:
    """Files that the API holds: a configMap, a secret, the downward API, or several of them projected together."""

    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # by relative path
    mode: int = 0o644
    modes: Mapping[str, int] = field(default_factory=dict)  # where a file has its own
    secret: bool = False  # kept in memory, never on disk


@dataclass(frozen=True, slots=True)
class Claim:
    """A persistent volume claim, by the uid of the object: one re-created under the same name is another one."""

    namespace: str
    name: str
    uid: str
    size: int | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class HostPath:
    path: str
    type: str = (
        ""  # as Kubernetes has it: Directory, DirectoryOrCreate, File, FileOrCreate, Socket; empty: whatever is there
    )


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    name: str
    source: EmptyDir | Content | Claim | HostPath


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume that is there. A `tmpfs` has no path: the backend makes it, inside, once for the pod."""

    name: str
    path: Path | None = None
    within: Path | None = (
        None  # above `path`; from there on sandboxes can put links. None: `path` lies in a folder of ours, and is none
    )
    tmpfs_size: int | None = None
    read_only: bool = False
    enforced: bool = True  # whether its size is held by the machine; if not, the pod says so
    image: Path | None = None  # the file that holds it as a file system of its own, if one does
    note: str = ""  # what the user should know about it
