"""What is stored about images, as small JSON files that are replaced atomically, and who may use an image or a layer.

A file that cannot be read counts as missing. An image that was pulled with a login is given only to pods that prove their access: with a
login for which the registry has already served this very image, or by asking the registry again. A layer that came with a login is reused
only by a pull of the same repository in which the registry confirms the same blob; any other pull has to download it, even if an unpacked
copy exists. What was pulled without a login, and what the operator imported, is for everybody.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from sandpool.base.shares import OPERATOR
from sandpool.node.images.image import Credential, ImageConfig
from sandpool.node.images.reference import ImageName

PULLED, IMPORTED = "pull", "import"
MOST_TENANTS = 256  # remembered for one image


class NameRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The image that a name refers to."""

    reference: str
    id: str
    digests: tuple[str, ...] = ()  # of the manifest and of the index that led to it, if it came from a registry
    at: float = 0.0  # when it was pulled or imported
    origin: str = PULLED
    public: bool = False  # for every pod: pulled without a login, or imported by the operator
    proofs: tuple[str, ...] = ()  # of the logins that the registry gave this image to, see `may_use`


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An image by the digest of its config. When it was used last is the file's modification time."""

    id: str
    layers: tuple[str, ...]  # diff ids, lowest first
    lowest: int = 0  # index of the lowest visible layer: a higher one may hide all below it
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: dict[str, str] = {}
    working_dir: str = ""
    user: str = ""
    stop_signal: str = ""
    tenants: tuple[
        str, ...
    ] = ()  # namespaces whose pods have used it, and the operator (""), see `Charges` in prune.py

    @property
    def config(self) -> ImageConfig:
        return ImageConfig(self.entrypoint, self.cmd, self.env, self.working_dir, self.user, self.stop_signal)


def used_by(record: ImageRecord, *tenants: str) -> ImageRecord:
    """The same record, used by these tenants as well. What the operator imported is charged to nobody else. Only MOST_TENANTS are kept: the
    share of one more would be next to nothing."""
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
    """Who may use an unpacked layer without downloading it. Without this file, no pull may."""

    public: bool = False
    providers: tuple[str, ...] = ()  # registry/repository@digest that delivered it to a login


class HoldRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A holder needs an image, or a pull is about to need these layers."""

    holder: str
    image: str
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UsedImage:
    """An image and when it was used last."""

    record: ImageRecord
    at: float


T = TypeVar("T")


def read_record(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def write_record(path: Path, record: msgspec.Struct, work: Path, *, durable: bool = True) -> None:
    """Writes a record atomically. `durable`: it survives a power loss."""
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
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Makes names in a directory survive a power loss."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_MOST_PROOFS = 256  # newest proofs and providers that are kept; others have to be proved again


def proof(key: bytes, name: ImageName, credential: Credential) -> str:
    """A keyed hash of a login at a registry. Without the key of this directory it reveals nothing about the password."""
    words = (name.registry, credential.username, credential.password)
    message = b"".join(len(word).to_bytes(8, "big") + word for word in (text.encode() for text in words))
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def may_use(record: NameRecord, proofs: Collection[str]) -> bool:
    return record.public or record.origin == IMPORTED or not set(proofs).isdisjoint(record.proofs)


def merge_names(old: NameRecord | None, new: NameRecord) -> NameRecord:
    """Keeps the proofs of the old record if the name still refers to the same image."""
    if old is None or old.id != new.id:
        return new
    public = new.public or old.public or old.origin == IMPORTED
    return msgspec.structs.replace(new, public=public, proofs=_newest(old.proofs, new.proofs))


def provider(name: ImageName, digest: str) -> str:
    return f"{name.registry}/{name.repository}@{digest}"


def merge_access(old: LayerAccess, public: bool, providers: tuple[str, ...]) -> LayerAccess:
    return LayerAccess(public=old.public or public, providers=_newest(old.providers, providers))


def _newest(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return (*(one for one in old if one not in new), *new)[-_MOST_PROOFS:]
