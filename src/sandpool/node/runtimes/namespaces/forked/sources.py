"""Opening what a container mounts: once, by the process that mounts it, so that what was judged is what is mounted.

Sandboxes can write to volumes, and so can exchange a folder for a link at any moment, or years before. The way to `within` is ours or
the operator's; from there to the volume itself no link is followed. A sub path may lead through links, but not out of
its volume: the kernel judges each step while it takes it. No name is ever looked up twice.

It is looked for among the mounts that the machine has now. Where those are not shared, as without systemd or in a container, what is
mounted after the fork-server was started does not arrive in its own namespace, and a name would lead below it: to a folder whose
size nobody holds.
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
from sandpool.node.runtimes.namespaces.forked.frames import Refused

NO_LINKS = kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_SYMLINKS | kernel.RESOLVE_NO_MAGICLINKS
INSIDE = kernel.RESOLVE_BENEATH | kernel.RESOLVE_NO_MAGICLINKS
OPEN_TO_ALL = 0o777
REASON = "CreateContainerConfigError"
HIGH = 256  # numbers of files from here on are nobody's, where there may be so many: those who start programs arrange the lower ones

Order = dict[str, Any]

_machine: list[int] = []


def remember_machine() -> None:
    """In the fork-server, as root, before it leaves the machine's mount namespace. Whoever is forked from it has this, too, and no
    sandbox: it is closed with all other files."""
    file = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    above = HIGH if most == resource.RLIM_INFINITY else min(HIGH, most // 2)
    _machine.append(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above))
    os.close(file)


@contextlib.contextmanager
def mounts_of_machine() -> Iterator[None]:
    """What is opened meanwhile is what the machine has there now; and only meanwhile can it be copied. An ordinary user may not go
    there, and mounts nothing."""
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


def copy_source(mount: Order) -> tuple[int, int]:
    """An O_PATH of the file or folder, and a copy of the mount that it is on, to be mounted elsewhere."""
    with mounts_of_machine():
        source = open_source(mount)
        tree = kernel.open_tree("", folder=source)
        # A copy of a shared mount shares with it what is mounted on either, and the machine has no use for a sandbox's mounts.
        kernel.mount_setattr(tree, 0, propagation=kernel.MS_PRIVATE)
        return source, tree


def open_source(mount: Order) -> int:
    """An O_PATH of the file or folder."""
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
    """A folder of an image. Its path was resolved when the image was looked up: a link on it came later, and is not ours."""
    return open_volume("/", path.lstrip("/") or ".", path)


def open_below(volume: int, sub: str, *, make: bool) -> int:
    """A path below an open volume; if it is missing and may be made, it becomes a folder that everybody may use."""
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
    """Step by step. What is made has its mode from the beginning: to change it later, by whatever name or descriptor, could be
    to change something else that was put in its place."""
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
        pass  # a link that leads nowhere, or somebody else was faster
    except NotADirectoryError as error:
        raise Refused(REASON, f"subPath {path!r} cannot be used: what it lies in is no folder") from error
    finally:
        os.umask(mask)
    try:
        return _find(volume, path)
    except FileNotFoundError:
        raise Refused(REASON, f"subPath {path!r} is a link that leads nowhere; remove the link") from None
