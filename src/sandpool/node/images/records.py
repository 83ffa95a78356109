"""What the folder of images remembers, as small JSON files that are replaced whole. A file that cannot be read is not there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from sandpool.base.shares import OPERATOR
from sandpool.node.images.image import ImageConfig

PULLED, IMPORTED = "pull", "import"
MOST_TENANTS = 256  # that are remembered of one image


class NameRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a name stands for."""

    reference: str
    id: str
    digests: tuple[str, ...] = ()  # of the manifest and of the index that led to it, if a registry told them
    at: float = 0.0  # when it was pulled or imported
    origin: str = PULLED
    public: bool = False  # for every pod: pulled without a login, or brought here by the operator
    proofs: tuple[str, ...] = ()  # of the logins that the registry gave this image to, see access.py


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An image by the digest of its config. When it was used last is the file's modification time."""

    id: str
    layers: tuple[str, ...]  # diff ids, lowest first
    lowest: int = 0  # of the layers, the first that shows: a higher one may hide all below it
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: dict[str, str] = {}
    working_dir: str = ""
    user: str = ""
    stop_signal: str = ""
    tenants: tuple[str, ...] = ()  # namespaces whose pods have used it, and the operator (""), see charges.py

    @property
    def config(self) -> ImageConfig:
        return ImageConfig(self.entrypoint, self.cmd, self.env, self.working_dir, self.user, self.stop_signal)


def used_by(record: ImageRecord, *tenants: str) -> ImageRecord:
    """The same, used by these as well. What the operator brought is nobody else's. Only so many are remembered: what one of more would have
    to bear is next to nothing."""
    users = tuple(dict.fromkeys((*record.tenants, *tenants)))[:MOST_TENANTS]
    if OPERATOR in tenants or OPERATOR in record.tenants:
        users = (OPERATOR,)
    return msgspec.structs.replace(record, tenants=users) if users != record.tenants else record


def image_record(id_: str, layers: tuple[str, ...], lowest: int, run: ImageConfig) -> ImageRecord:
    return ImageRecord(
        id=id_, layers=layers, lowest=lowest, entrypoint=run.entrypoint, cmd=run.cmd, env=dict(run.env), working_dir=run.working_dir,
        user=run.user, stop_signal=run.stop_signal,
    )  # fmt: skip


class LayerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Written by the worker beside an unpacked layer."""

    diff_id: str
    owners: bool
    files: int
    bytes: int
    opaque: tuple[str, ...] = ()
    skipped: dict[str, int] = {}
    opaque_root: bool = False
    implied: tuple[str, ...] = ()


class LayerAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Who may use an unpacked layer without delivering it, see access.py. A layer without this file is nobody's."""

    public: bool = False
    providers: tuple[str, ...] = ()  # registry/repository@digest that delivered it to somebody who had logged in


class HoldRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody needs an image, or a pull is about to need these layers."""

    holder: str
    image: str
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Used:
    record: ImageRecord
    at: float


T = TypeVar("T")


def read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def write(path: Path, record: msgspec.Struct, work: Path, *, durable: bool = True) -> None:
    """Whole or not at all; durable: also if the power fails."""
    temporary = work / f"{path.name}.{os.urandom(4).hex()}"
    try:
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def sync(folder: Path) -> None:
    """Makes names in a folder survive a power loss."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
