"""Opens what a container mounts: once, in the process that mounts it, so that what was checked is what is mounted.

Sandboxes can write to volumes, so they can replace a directory by a link at any time. The path to `within` belongs to us or to the operator;
from there to the volume itself no link is followed. A sub path may go through links, but not out of its volume: the kernel checks each step
while it takes it. No name is ever looked up twice.

Paths are resolved in the machine's current mounts. Where mounts are not shared, as without systemd or in a container, what is mounted
after the fork server was started does not appear in its own mount namespace. There, the path would lead to the directory below the mount,
which has no size limit.

Memory volumes are mounts in a mount namespace without processes, kept alive by an open file of the main process. When that is closed, all of
them are gone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
from collections.abc import Iterator
from typing import Any

from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.frames import Refused, doing

NO_LINKS = kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_SYMLINKS | kernel.RESOLVE_NO_MAGICLINKS
INSIDE = kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_MAGICLINKS
OPEN_TO_ALL = 0o777
REASON = "CreateContainerConfigError"
HIGH = 256  # descriptors from here on are not rearranged when programs are started

Request = dict[str, Any]

_machine: list[int] = []


def remember_machine() -> None:
    """Opens the machine's mount namespace. Called in the fork server as root, before it leaves that namespace. Workers inherit the descriptor;
    sandboxes do not, because all other files are closed."""
    file = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    above = HIGH if most == resource.RLIM_INFINITY else min(HIGH, most // 2)
    _machine.append(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above))
    os.close(file)


@contextlib.contextmanager
def mounts_of_machine() -> Iterator[None]:
    """Enters the machine's mount namespace, in which paths lead to its current mounts, and the only one in which these can be copied. Does nothing
    for an ordinary user, who may not enter it and mounts nothing."""
    if not _machine:
        yield
        return
    before, own = os.open(".", os.O_PATH | os.O_DIRECTORY), os.open("/proc/self/ns/mnt", os.O_RDONLY)
    try:
        kernel.setns(_machine[0], kernel.CLONE_NEWNS)
        try:
            yield
        finally:
            kernel.setns(own, kernel.CLONE_NEWNS)
            os.fchdir(before)
    finally:
        os.close(own)
        os.close(before)


def copy_source(mount: Request) -> tuple[int, int]:
    """Opens the file or directory (O_PATH) and copies the mount that it is on, to be mounted elsewhere."""
    with mounts_of_machine():
        source = open_source(mount)
        tree = kernel.open_tree("", directory=source)
        # A copy of a shared mount would propagate mounts to the machine and back, so make it private.
        kernel.mount_setattr(tree, 0, propagation=kernel.MS_PRIVATE)
        return source, tree


def open_source(mount: Request) -> int:
    """Opens the file or directory (O_PATH)."""
    volume = open_volume(mount["within"], mount["inside"], mount["source"])
    sub = mount["sub"]
    if not sub:
        return volume
    try:
        return open_below(volume, sub, make=mount["make"])
    finally:
        os.close(volume)


def open_volume(within: str, inside: str, shown: str) -> int:
    above = os.open(within, os.O_PATH | os.O_DIRECTORY)
    try:
        return kernel.openat2(above, inside, os.O_PATH, NO_LINKS)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EXDEV):
            raise
        raise Refused(
            "CreateContainerError",
            f"{shown} of this machine is, or lies behind, a symbolic link: none is followed; remove the link",
        ) from error
    finally:
        os.close(above)


def open_layer(path: str) -> int:
    """Opens a directory of an image. Its path was resolved when the image was looked up, so a link on it was put there later by others."""
    return open_volume("/", path.lstrip("/") or ".", path)


def open_below(volume: int, sub: str, *, make: bool) -> int:
    """Opens a path below an open volume. If it is missing and `make` is set, it becomes a directory that everybody may use."""
    try:
        return _find(volume, sub)
    except FileNotFoundError:
        if not make:
            raise Refused(
                REASON, f"subPath {sub!r} is not in the volume, which is read-only; choose one that is there"
            ) from None
    return _make(volume, sub)


def _find(volume: int, sub: str) -> int:
    try:
        return kernel.openat2(volume, sub, os.O_PATH, INSIDE)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.EXDEV:
            why = "leads out of the volume through a link; remove the link"
        else:
            why = f"cannot be used: {(error.strerror or '').lower()}"
        raise Refused(REASON, f"subPath {sub!r} {why}") from error


def _make(volume: int, sub: str) -> int:
    """Creates missing directories step by step, each with its final mode: a later chmod, by name or descriptor, could change something else that
    a sandbox has put in its place."""
    names = [name for name in sub.split("/") if name not in ("", ".")]
    here = os.dup(volume)
    for depth, name in enumerate(names, start=1):
        path = "/".join(names[:depth])
        try:
            found = _step(volume, here, path, name)
        finally:
            os.close(here)
        here = found
    return here


def _step(volume: int, here: int, path: str, name: str) -> int:
    try:
        return _find(volume, path)
    except FileNotFoundError:
        pass
    mask = os.umask(0)
    try:
        os.mkdir(name, OPEN_TO_ALL, dir_fd=here)
    except FileExistsError:
        pass  # a dangling link, or another process was faster
    except NotADirectoryError as error:
        raise Refused(REASON, f"subPath {path!r} cannot be used: a part of its path is not a directory") from error
    finally:
        os.umask(mask)
    try:
        return _find(volume, path)
    except FileNotFoundError:
        raise Refused(REASON, f"subPath {path!r} is a dangling link; remove it") from None


FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV


def make_memory_volumes(request: dict[str, Any], files: list[int]) -> list[int]:
    """Creates the volumes that are missing. `files` holds the mount namespace if there is one yet; otherwise a new one is returned."""
    with doing("make a volume in memory", "FailedMount"):
        made = [] if files else [_empty_namespace(request["directory"])]
        if files:
            kernel.setns(files[0], kernel.CLONE_NEWNS)
        for volume in request["volumes"]:
            uid, gid = volume["owner"]
            os.mkdir(f"/{volume['name']}", 0o700)
            size = f",size={volume['size']}" if volume["size"] else ""
            options = f"mode=0777,uid={uid},gid={gid}{size}"
            kernel.mount("tmpfs", f"/{volume['name']}", "tmpfs", FLAGS, options)
    return made


def _empty_namespace(directory: str) -> int:
    kernel.unshare(kernel.CLONE_NEWNS)
    namespace = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    kernel.mount("tmpfs", directory, "tmpfs", FLAGS, "size=64k,mode=0700")
    os.chdir(directory)
    kernel.pivot_here()
    return namespace


def copy_memory_volumes(held: int, mounts: list[dict[str, Any]]) -> dict[int, int]:
    """Copies the memory volumes of these mounts, to be mounted elsewhere; by the number of the mount."""
    with doing("use a volume in memory", "FailedMount"):
        own = os.open("/proc/self/ns/mnt", os.O_RDONLY)
        kernel.setns(held, kernel.CLONE_NEWNS)
        trees = {
            number: kernel.open_tree(f"/{mount['volume']}")
            for number, mount in enumerate(mounts)
            if mount["source"] is None
        }
        kernel.setns(own, kernel.CLONE_NEWNS)
        os.close(own)
    return trees
