"""Control groups as files, in the process that uses them: making, joining."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from sandpool.node.runtimes.namespaces.forked.frames import doing

Setting = tuple[str, str, bool]  # file, value, and whether a kernel without it is refused
Group = tuple[str, Sequence[Setting]]


def make(groups: Sequence[Group]) -> None:
    for path, settings in groups:
        with doing("make a control group", "Cgroups"):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)
            for file, value, required in settings:
                try:
                    write(f"{path}/{file}", value)
                except OSError:
                    if required:
                        raise


def join(paths: Sequence[str]) -> None:
    """This process, and all that it starts from now on."""
    for path in paths:
        with doing("join a control group", "Cgroups"):
            write(f"{path}/cgroup.procs", "0")


def open_memory(paths: Sequence[str]) -> int | None:
    """The file that counts the processes of these groups which ended for want of memory, open for reading; None if none does."""
    for path in paths:
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                return os.open(f"{path}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    return None


def write(path: str, value: str, flags: int = 0) -> None:
    file = os.open(path, os.O_WRONLY | flags)
    try:
        os.write(file, value.encode())
    finally:
        os.close(file)


def read(path: str) -> str:
    """Empty if it cannot be read."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
