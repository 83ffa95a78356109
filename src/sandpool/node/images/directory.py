"""The directory that holds images. Several processes may use it at once: a running cluster, and commands beside it.

    layers/HEX/root, layers/HEX/layer.json    one unpacked layer and its record; HEX.user where owners are not kept
    layers/HEX/access.json, key               who may use it without downloading it, and the key for proofs of logins
    images/HEX.json, names/*.json             images by the digest of their config, and what names refer to
    processes/ID/{lock,holds,work}            of one process that uses the directory: what it needs, and what is unfinished

A kernel lock on `processes/ID/lock` shows that the process is alive; the next process that opens the directory removes what a dead one
left. Looking something up and holding it takes `lock` shared, removing takes it exclusively, so nothing can vanish in between. All
methods block; only `release` may run on the event loop.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from sandpool.node.images.records import (
    HoldRecord,
    ImageRecord,
    LayerAccess,
    LayerRecord,
    NameRecord,
    UsedImage,
    merge_access,
    read_record,
    sync_directory,
    used_by,
    write_record,
)
from sandpool.node.images.tree import remove_entry
from sandpool.node.images.unpack import keeps_owners
from sandpool.node.images.worker import RECORD, ROOT

_ACCESS = "access.json"  # of a layer
_KEY_BYTES = 32


class ImageDirectory:
    """Reads and writes the image directory on behalf of one process. Use it between `open` and `close`."""

    def __init__(self, root: Path, identity: str) -> None:
        root = Path(os.path.realpath(root))  # mounting a layer follows no links
        self.root = root
        self.layers, self.images, self.names = root / "layers", root / "images", root / "names"
        self._processes = root / "processes"
        self._own = self._processes / identity
        self.work, self._holds = self._own / "work", self._own / "holds"
        self._held: dict[str, set[Path]] = {}
        self._alive = -1
        self.key = b""  # known from `open` on
        self._suffix = "" if keeps_owners() else ".user"

    def open(self) -> None:
        """Private to its owner: a setuid program of an image must not be within anybody's reach."""
        for directory in (self.root, self.layers, self.images, self.names, self._processes):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self.root, 0o700)
        with self.locked(exclusive=True):
            for directory in (self._own, self.work, self._holds):
                directory.mkdir(mode=0o700)
            self._alive = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._alive, fcntl.LOCK_EX)
            self.key = self._key()
            trash = [self.throw_away(dead) for dead in list(self._others(alive=False))]
        for path in trash:
            with suppress(OSError):  # its worker may still be exiting; the rest is removed with our own directory
                remove_tree(path)

    def _key(self) -> bytes:
        """Created once, with the lock held. If it is lost or damaged, pods have to prove their logins again."""
        path = self.root / "key"
        with suppress(FileNotFoundError):
            if len(key := path.read_bytes()) == _KEY_BYTES:
                return key
        fresh = self.work / "key"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(os.urandom(_KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_directory(self.root)
        return path.read_bytes()

    def close(self) -> None:
        if self._alive >= 0:
            with suppress(OSError):  # the next to open tries again
                remove_tree(self._own)
            os.close(self._alive)
            self._alive = -1
            self._held.clear()

    @contextmanager
    def locked(self, *, exclusive: bool = False) -> Iterator[None]:
        fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield
        finally:
            os.close(fd)

    def _others(self, *, alive: bool) -> Iterator[Path]:
        for directory in self._processes.iterdir():
            if directory != self._own and _is_locked(directory / "lock") == alive:
                yield directory

    # Layers

    def layer(self, diff_id: str) -> Path:
        return self.layers / (diff_id.removeprefix("sha256:") + self._suffix)

    def layer_root(self, diff_id: str) -> Path:
        return self.layer(diff_id) / ROOT

    def layer_record(self, diff_id: str) -> LayerRecord | None:
        return read_record(self.layer(diff_id) / RECORD, LayerRecord)

    def has_layer(self, diff_id: str) -> bool:
        return (self.layer(diff_id) / RECORD).exists()

    def layer_access(self, diff_id: str) -> LayerAccess:
        return read_record(self.layer(diff_id) / _ACCESS, LayerAccess) or LayerAccess()

    def grant(self, grants: Mapping[str, LayerAccess]) -> None:
        """Takes the lock exclusively: what others grant meanwhile must not be lost."""
        with self.locked(exclusive=True):
            for diff_id, more in grants.items():
                old = self.layer_access(diff_id)
                new = merge_access(old, more.public, more.providers)
                if new != old and self.has_layer(diff_id):
                    write_record(self.layer(diff_id) / _ACCESS, new, self.work)

    def fresh(self) -> Path:
        """An empty directory for something unfinished."""
        path = self.work / os.urandom(8).hex()
        path.mkdir(mode=0o700)
        return path

    def keep_layer(self, unfinished: Path, diff_id: str) -> None:
        """Publishes an unpacked layer. If another process was faster, its layer has the same content."""
        try:
            unfinished.rename(self.layer(diff_id))
        except OSError:
            if not self.has_layer(diff_id):
                raise
            remove_tree(unfinished)
        sync_directory(self.layers)

    # Names and images

    def name_path(self, reference: str) -> Path:
        return self.names / f"{hashlib.sha256(reference.encode()).hexdigest()[:32]}.json"

    def image_path(self, id_: str) -> Path:
        return self.images / f"{id_.removeprefix('sha256:')}.json"

    def name(self, reference: str) -> NameRecord | None:
        return read_record(self.name_path(reference), NameRecord)

    def image(self, id_: str) -> ImageRecord | None:
        """None also if one of its layers is missing."""
        record = read_record(self.image_path(id_), ImageRecord)
        return record if record is not None and all(map(self.has_layer, record.layers)) else None

    def keep_image(self, record: ImageRecord, names: tuple[NameRecord, ...], now: float) -> None:
        """With the lock held exclusively. Tenants that used the image before keep sharing its cost."""
        old = read_record(self.image_path(record.id), ImageRecord)
        write_record(self.image_path(record.id), used_by(record, *(old.tenants if old is not None else ())), self.work)
        os.utime(self.image_path(record.id), (now, now))
        for name in names:
            write_record(self.name_path(name.reference), name, self.work)

    def note_use(self, id_: str, tenant: str, now: float) -> None:
        """From now on the tenant shares the cost of the image. With the lock held exclusively."""
        record = read_record(self.image_path(id_), ImageRecord)
        if record is not None and (used := used_by(record, tenant)) is not record:
            write_record(self.image_path(id_), used, self.work)
            os.utime(self.image_path(id_), (now, now))

    def all_names(self) -> list[NameRecord]:
        return [record for path in self.names.iterdir() if (record := read_record(path, NameRecord)) is not None]

    def all_images(self) -> list[UsedImage]:
        found = []
        for path in self.images.iterdir():
            record = read_record(path, ImageRecord)
            if record is not None:
                found.append(UsedImage(record, path.stat().st_mtime))
        return found

    # Holds

    def hold(self, record: HoldRecord, now: float) -> None:
        """With the lock held at least shared. Not synced: a hold does not outlive its process anyway."""
        key = hashlib.sha256("\0".join((record.holder, record.image)).encode()).hexdigest()[:32]
        path = self._holds / f"{key}.json"
        write_record(path, record, self.work, durable=False)
        self._held.setdefault(record.holder, set()).add(path)
        used = self.image_path(record.image)
        if record.image and used.exists():
            os.utime(used, (now, now))

    def release(self, holder: str) -> None:
        for path in self._held.pop(holder, ()):
            with suppress(OSError):
                path.unlink()

    def all_holds(self) -> list[HoldRecord]:
        """The holds of all live processes. With the lock held."""
        directories = [self._own, *self._others(alive=True)]
        paths = [path for directory in directories for path in (directory / "holds").glob("*.json")]
        return [record for path in paths if (record := read_record(path, HoldRecord)) is not None]

    # Removal

    def throw_away(self, path: Path) -> Path:
        """Moves it to the trash at once. Returns its new path, for `remove_tree`, which may take long."""
        return path.rename(self.work / f"trash-{os.urandom(8).hex()}")


def remove_tree(path: Path) -> None:
    """Removes a tree whatever its modes; no error if it does not exist."""
    try:
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        remove_entry(parent, os.fsencode(path.name))
    finally:
        os.close(parent)


def _is_locked(lock: Path) -> bool:
    """Whether a process holds it."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
