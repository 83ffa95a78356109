"""Removes directories that a sandbox has filled, and the writable layers of earlier runs of a container.

A container can pass an open file, a mount namespace or a socket's name to another container. Each keeps the file system of that run alive,
which in turn keeps files that are removed below it: their bytes would not be freed and could not be measured. So an earlier run whose file
system is still in use is not removed, and counts.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time

from sandpool.node.openat import clear_directory
from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.frames import doing
from sandpool.node.runtimes.namespaces.forked.layers import FLAGS, UPPER, WORK


def empty(path: str, *, itself: bool = False) -> None:
    """Empties a directory, and removes it if `itself`. No error if it does not exist."""
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        with doing(f"empty {path}", "Removal"):
            clear_directory(top)
    finally:
        os.close(top)
    if itself:
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(path)


RELEASE_PAUSES = (0.001, 0.004, 0.016, 0.064, 0.128, 0.256)
"""Seconds to wait between attempts: the kernel releases the file system of an ended container a moment after its end."""
BELOW = "below"


def remove_older(directory: str) -> None:
    """Removes the directories of earlier runs; the last component is the number of the run. Needs a private mount namespace."""
    parent, name = os.path.split(directory)
    stem, _, _ = name.rpartition("-")
    pauses = list(RELEASE_PAUSES)
    for other in os.listdir(parent):
        start, _, number = other.rpartition("-")
        if start == stem and number.isdigit():
            _remove_run(f"{parent}/{other}", pauses)


def _remove_run(directory: str, pauses: list[float]) -> None:
    """Removes one earlier run, if it is not in use. All runs share `pauses`. A run that is still in use is tried again at the next run, or removed
    with the sandbox."""
    while _held(directory):
        if not pauses:
            return
        time.sleep(pauses.pop(0))
    empty(directory, itself=True)


def _held(directory: str) -> bool:
    try:
        names = [name.removesuffix(UPPER) for name in os.listdir(directory) if name.endswith(UPPER)]
    except FileNotFoundError:
        return False
    return any(_in_use(directory, name) for name in names)


def _in_use(directory: str, name: str) -> bool:
    """Asks the kernel by mounting a second overlay with `index` on the same directories, which it refuses if they are in use. Any other result means
    that they are not."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(f"{directory}/{BELOW}", 0o700)
    before = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        os.chdir(directory)  # short relative names: no length limit, no special characters in mount options
        options = f"lowerdir={BELOW},upperdir={name}{UPPER},workdir={name}{WORK},index=on"
        kernel.mount("overlay", BELOW, "overlay", FLAGS, options)
    except OSError as error:
        return error.errno == errno.EBUSY
    else:
        kernel.unmount(BELOW, 0)
        return False
    finally:
        os.fchdir(before)
        os.close(before)
