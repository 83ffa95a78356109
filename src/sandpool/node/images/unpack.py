"""Unpacks one layer of an image: from a tar stream to a directory that overlayfs can use as a lower layer.

Whiteouts are written as overlayfs expects them: a character device 0:0 for a removed name (an ordinary user may create it since Linux 5.8),
and an extended attribute for an opaque directory, which hides its content in lower layers. Mounts with `userxattr` read
`user.overlay.opaque`; others read `trusted.overlay.opaque`, which only root can write. Root writes both.

Standard library only: this runs in a worker process. See tests/unit/node/images/test_whiteouts.py for the expected results.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from sandpool.node.images import tar
from sandpool.node.images.tar import BadArchive, Entry, TarReader, TooMany, printable
from sandpool.node.images.tree import Path, Tree, split

_WHITEOUT, _RESERVED, _OPAQUE = b".wh.", b".wh..wh.", b".wh..wh..opq"
_LATEST = 253402300799 * 10**9  # the last second of the year 9999
_DISK_BLOCK = 4096
_MOST_IMPLIED = 10_000
_USERS = 65536


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits of one layer, and how owners and whiteouts are written."""

    owners: bool  # whether owners and setuid bits are kept
    opaque: tuple[str, ...]  # the extended attributes that mark an opaque directory
    entries: int
    path: int
    depth: int


@dataclass(slots=True)
class Unpacked:
    """The result of unpacking a layer."""

    files: int = 0
    bytes: int = 0  # on disk, approximately
    skipped: dict[str, int] = field(default_factory=dict)  # skipped entries (devices, fifos), by kind
    opaque_root: bool = False  # overlayfs ignores an opaque root, so the caller must leave out all layers below
    implied: list[str] = field(
        default_factory=list
    )  # directories without an entry of their own: lower layers decide their mode and owner


@dataclass(frozen=True, slots=True)
class _Look:
    """Mode, owner and time that a directory gets once everything is in it."""

    mode: int
    uid: int
    gid: int
    mtime_ns: int


def keeps_owners() -> bool:
    """Whether this process can chown files to every user id that an image may contain. Root of a user namespace often cannot."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/uid_map", "rb") as file:
        mapped = [tuple(map(int, line.split())) for line in file]
    return any(start == 0 and count >= _USERS for start, _, count in mapped)


def opaque_attributes(directory: int) -> tuple[str, ...]:
    """The attributes for opaque directories that this process can write here."""
    try:
        os.setxattr(directory, "trusted.overlay.probe", b"")
        os.removexattr(directory, "trusted.overlay.probe")
    except OSError:
        return ("user.overlay.opaque",)
    return ("trusted.overlay.opaque", "user.overlay.opaque")


class Unpacker:
    """Unpacks the entries of one layer below an open directory."""

    def __init__(self, root: int, rules: Rules, done: Unpacked | None = None) -> None:
        self._tree = Tree(root)
        self._root = root
        self._rules = rules
        self._looks: dict[Path, _Look | None] = {}  # of directories created here; None: implied
        self._below: dict[
            Path, list[Path]
        ] = {}  # directories created in each directory, so that removing one costs no more than creating it did
        self.done = done if done is not None else Unpacked()

    def unpack(self, archive: TarReader) -> Unpacked:
        with self._tree:
            for number, entry in enumerate(archive, 1):
                if number > self._rules.entries:
                    raise TooMany(f"it has more than {self._rules.entries} entries")
                self._put(entry, archive)
            self._finish()
        self.done.implied = sorted(islice(self._implied(), _MOST_IMPLIED))
        return self.done

    def _implied(self) -> Iterator[str]:
        """The implied directories. Names that are not UTF-8 are left out: no builder that omits directory entries writes such names."""
        for path, look in {(): None, **self._looks}.items():
            if look is None:
                name = b"/".join(path).decode(errors="replace")
                if "\ufffd" not in name:
                    yield name

    def _put(self, entry: Entry, archive: TarReader) -> None:
        path = split(entry.path, self._rules.path, self._rules.depth)
        if b".wh." in entry.path and any(name.startswith(_WHITEOUT) for name in path):
            self._put_whiteout(path, entry)
            return
        match entry.kind:
            case tar.DIRECTORY:
                self._put_directory(path, _look(entry, self._rules))
            case tar.CHARACTER | tar.BLOCK_DEVICE:
                self._skip("devices")
            case tar.FIFO:
                self._skip("fifos")
            case _ if not path:
                raise BadArchive("its root is not a directory")
            case tar.FILE:
                self._put_file(path, entry, archive)
            case tar.SYMLINK:
                self._put_symlink(path, entry)
            case _:
                self._put_hard_link(path, entry)

    def _skip(self, kind: str) -> None:
        self.done.skipped[kind] = self.done.skipped.get(kind, 0) + 1

    def _count(self, content: int = 0) -> None:
        self.done.files += 1
        if self.done.files > self._rules.entries:  # one entry can imply many directories
            raise TooMany(f"it makes more than {self._rules.entries} files and directories")
        self.done.bytes += content + (-content % _DISK_BLOCK or (0 if content else _DISK_BLOCK))

    def _put_directory(self, path: Path, look: _Look | None) -> None:
        """Creates a directory. `look` is None for one that has no entry and is only implied by what it contains."""
        if not path:
            self._looks[path] = look
            return
        parent = self._parent(path)
        found = self._tree.stat(path)
        if found is not None and stat.S_ISDIR(found.st_mode):
            self._looks[path] = look or self._looks[path]
            return
        if found is not None:
            os.unlink(path[-1], dir_fd=parent)
        os.mkdir(path[-1], 0o700, dir_fd=parent)
        self._looks[path] = look
        self._below.setdefault(path[:-1], []).append(path)
        self._count()
        if found is not None:  # it replaces a file or a whiteout: a directory in a lower layer must not show through
            self._make_opaque(path)

    def _parent(self, path: Path) -> int:
        """The parent directory, created if it is missing."""
        above = path[:-1]
        if above and above not in self._looks:
            for depth in range(1, len(above) + 1):
                if above[:depth] not in self._looks:
                    self._put_implied(above[:depth])
        return self._tree.directory(above)

    def _put_implied(self, path: Path) -> None:
        found = self._tree.stat(path)
        if found is not None and not stat.S_ISDIR(found.st_mode) and not _is_whiteout(found):
            raise BadArchive(
                f"an entry goes through {printable(b'/'.join(path))}, which is a link or a file and not a directory"
            )
        self._put_directory(path, None)

    def _make_room(self, path: Path) -> int:
        """Removes what an earlier entry of this layer created at this path. Returns the parent directory."""
        parent = self._parent(path)
        found = self._tree.stat(path)
        if found is None:
            return parent
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(path[-1], dir_fd=parent)
            return parent
        gone = [path]
        while gone:
            directory = gone.pop()
            self._looks.pop(directory, None)
            gone += self._below.pop(directory, ())
        self._tree.remove(path)
        return self._tree.directory(path[:-1])

    def _put_file(self, path: Path, entry: Entry, archive: TarReader) -> None:
        parent = self._make_room(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path[-1], flags, 0o600, dir_fd=parent)
        try:
            for piece in archive.content():
                _write(fd, piece)
            _dress(fd, _look(entry, self._rules), self._rules.owners)
        finally:
            os.close(fd)
        self._count(entry.size)

    def _put_symlink(self, path: Path, entry: Entry) -> None:
        if not entry.link or len(entry.link) > self._rules.path:
            raise BadArchive(f"link {printable(entry.path)} has a target of {len(entry.link)} bytes")
        parent = self._make_room(path)
        os.symlink(entry.link, path[-1], dir_fd=parent)
        look = _look(entry, self._rules)
        if self._rules.owners:
            os.chown(path[-1], look.uid, look.gid, dir_fd=parent, follow_symlinks=False)
        os.utime(path[-1], ns=(look.mtime_ns, look.mtime_ns), dir_fd=parent, follow_symlinks=False)
        self._count()

    def _put_hard_link(self, path: Path, entry: Entry) -> None:
        target = split(entry.link, self._rules.path, self._rules.depth)
        if target == path:
            raise BadArchive(f"hard link {printable(entry.path)} leads to itself")
        self._check_target(target, entry)
        parent = os.dup(self._make_room(path))
        try:
            self._check_target(target, entry)  # `_make_room` may have removed it
            source = self._tree.directory(target[:-1])
            os.link(target[-1], path[-1], src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(parent)
        self._count()

    def _check_target(self, target: Path, entry: Entry) -> None:
        found = self._tree.stat(target) if target and self._has_directory(target[:-1]) else None
        if found is None or not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            raise BadArchive(
                f"hard link {printable(entry.path)} leads to {printable(entry.link)}, which is no file that this layer has unpacked"
            )

    def _has_directory(self, path: Path) -> bool:
        return not path or path in self._looks

    def _put_whiteout(self, path: Path, entry: Entry) -> None:
        name = path[-1]
        if any(one.startswith(_RESERVED) for one in (*path[:-1], *((name,) if name != _OPAQUE else ()))):
            return  # metadata of AUFS, which is obsolete
        if any(above.startswith(_WHITEOUT) for above in path[:-1]):
            raise BadArchive(f"entry {printable(entry.path)} is below a name that is reserved for removals")
        if name == _OPAQUE:
            self._parent(path)
            self._make_opaque(path[:-1])
        else:
            self._remove_below((*path[:-1], name.removeprefix(_WHITEOUT)), entry)

    def _remove_below(self, path: Path, entry: Entry) -> None:
        """Hides what lower layers have under this name. What this layer itself has created there stays."""
        if path[-1] in (b"", b".", b".."):
            raise BadArchive(f"entry {printable(entry.path)} removes no name that a file can have")
        parent = self._parent(path)
        found = self._tree.stat(path)
        if found is None:
            os.mknod(path[-1], stat.S_IFCHR | 0o000, os.makedev(0, 0), dir_fd=parent)
            self._count()
        elif stat.S_ISDIR(found.st_mode):
            self._make_opaque(path)

    def _make_opaque(self, path: Path) -> None:
        if not path:
            self.done.opaque_root = True
        fd = self._tree.directory(path)
        for attribute in self._rules.opaque:
            try:
                os.setxattr(fd, attribute, b"y")
            except OSError as error:
                if error.errno == errno.ENOTSUP:
                    error.strerror = (
                        "the file system has no extended attributes; use ext4, xfs, btrfs or a recent tmpfs"
                    )
                raise

    def _finish(self) -> None:
        """Sets modes and owners of directories last and from the bottom up, because a mode may forbid further changes inside."""
        for path, look in sorted(self._looks.items(), key=lambda item: -len(item[0])):
            _dress(self._tree.directory(path), look or _Look(0o755, 0, 0, 0), self._rules.owners)
        if () not in self._looks:
            _dress(self._root, _Look(0o755, 0, 0, 0), self._rules.owners)


def _look(entry: Entry, rules: Rules) -> _Look:
    if max(entry.uid, entry.gid) > 0xFFFFFFFE:
        raise BadArchive(f"entry {printable(entry.path)} belongs to {entry.uid}:{entry.gid}, which no user can have")
    mode = entry.mode & (0o7777 if rules.owners else 0o1777 if entry.kind == tar.DIRECTORY else 0o777)
    return _Look(mode, entry.uid, entry.gid, min(entry.mtime_ns, _LATEST))


def _dress(fd: int, look: _Look, owners: bool) -> None:
    if owners:
        os.fchown(fd, look.uid, look.gid)
    os.fchmod(fd, look.mode)  # after fchown, which clears setuid bits
    os.utime(fd, ns=(look.mtime_ns, look.mtime_ns))


def _is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _write(fd: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(fd, view) :]
