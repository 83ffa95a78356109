"""Creates, joins and removes control groups, in the process that uses them."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Sequence

from sandpool.node.runtimes.namespaces.forked.frames import Refused, doing

Setting = tuple[str, str, bool]  # file, value, and whether it is an error if the kernel does not have the file
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
    """Moves this process, and so everything it starts from now on, into the groups."""
    for path in paths:
        with doing("join a control group", "Cgroups"):
            write(f"{path}/cgroup.procs", "0")


def open_memory(paths: Sequence[str]) -> int | None:
    """Opens the file that counts OOM kills of these groups; None if there is none."""
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


REMOVAL_TIMEOUT = 5.0
REMOVAL_POLL = 0.002


def remove_cgroups(paths: Sequence[str]) -> None:
    """Removes groups with all below them, and kills the processes in them."""
    deadline = time.monotonic() + REMOVAL_TIMEOUT
    for path in paths:
        for directory in _deepest_first(path):
            _remove_cgroup(directory, deadline)


def _deepest_first(path: str) -> list[str]:
    return [directory for directory, _, _ in os.walk(path, topdown=False)]


def _remove_cgroup(path: str, deadline: float) -> None:
    while True:
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise Refused("Cgroups", f"cannot remove {path}: {(error.strerror or '').lower()}") from error
        _end_members(path)
        time.sleep(REMOVAL_POLL)


def _end_members(path: str) -> None:
    for file, value in (("cgroup.freeze", "0"), ("freezer.state", "THAWED"), ("cgroup.kill", "1")):
        with contextlib.suppress(OSError):
            write(f"{path}/{file}", value)
    if not os.path.exists(f"{path}/cgroup.kill"):
        _end_each(f"{path}/cgroup.procs")


def _end_each(members: str) -> None:
    """Kills each process, for version 1 and kernels before 5.14. If a pid is still a member after its pidfd was opened, the pidfd is that of the
    listed process, and not of a reused pid."""
    for pid in read(members).split():
        with contextlib.suppress(OSError):
            process = os.pidfd_open(int(pid))
            try:
                if pid in read(members).split():
                    signal.pidfd_send_signal(process, signal.SIGKILL)
            finally:
                os.close(process)
