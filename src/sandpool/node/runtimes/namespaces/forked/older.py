"""Taking away what earlier runs of a container have written, while other containers of its sandbox go on.

An open file, a mount namespace or the name of a socket can be given to another container. Each keeps the file system of the run that had
it, and that keeps what it knows of files which are removed below it: their bytes would not be free, and nobody could count
them. So what is held stays as it is, and counts.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time

from sandpool.node.runtimes.namespaces.forked import kernel
from sandpool.node.runtimes.namespaces.forked.layers import FLAGS, UPPER, WORK
from sandpool.node.runtimes.namespaces.forked.removal import empty

PAUSES = (0.001, 0.004, 0.016, 0.064, 0.128, 0.256)
"""Seconds. The kernel lets go of the file system of an ended container a moment after its end."""
BELOW = "below"


def remove_older(folder: str) -> None:
    """The last part of a folder's name counts the runs. In a mount namespace of this process's own."""
    parent, name = os.path.split(folder)
    stem, _, _ = name.rpartition("-")
    pauses = list(PAUSES)
    for other in os.listdir(parent):
        start, _, number = other.rpartition("-")
        if start == stem and number.isdigit():
            _remove(f"{parent}/{other}", pauses)


def _remove(folder: str, pauses: list[float]) -> None:
    """`pauses` are used up, by all together. What is held then is looked at again by the next run, or removed with the sandbox."""
    while _held(folder):
        if not pauses:
            return
        time.sleep(pauses.pop(0))
    empty(folder, itself=True)


def _held(folder: str) -> bool:
    try:
        names = [name.removesuffix(UPPER) for name in os.listdir(folder) if name.endswith(UPPER)]
    except FileNotFoundError:
        return False
    return any(_in_use(folder, name) for name in names)


def _in_use(folder: str, name: str) -> bool:
    """Asks the kernel, which with an index refuses a second overlay on the same folders. If it says anything else, it has found
    them unused."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(f"{folder}/{BELOW}", 0o700)
    before = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        os.chdir(folder)  # in which no name is too long, or means something in a list of options
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
