"""`sandpool down`: stops the cluster of a data directory and waits until its processes, mounts and control groups are gone."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sandpool.cli.exits import FAILED, NOT_FOUND, TIMED_OUT, Exit
from sandpool.cli.flags import DataDirFlag, data_dir
from sandpool.cli.units import duration
from sandpool.controlplane.data_dir import DataDir, DataDirInUse

if TYPE_CHECKING:
    from sandpool.node.leftovers import Leftovers

PAUSE = 0.02  # seconds between checks of what is left
QUIET = 2.0  # seconds before it prints what it waits for


def down(
    *,
    data_dir_: DataDirFlag = None,
    timeout: Annotated[str, Parameter(help="How long to wait for the cluster to stop, such as 30s.")] = "30s",
) -> None:
    """Stop the local cluster. Its data stays in its data directory.

    Returns when its processes, sandboxes, control groups and mounts are gone, and cleans up after a cluster that was killed.
    """
    directory, seconds = data_dir(data_dir_), duration(timeout, "--timeout", zero=True)
    deadline = time.monotonic() + seconds
    pid = directory.holder()
    if pid == 0:
        raise Exit(FAILED, f"the cluster in {directory.root} is still starting; try again in a moment")
    if pid is not None:
        _stop(directory, pid, deadline, seconds)
    if not _cleared(directory, deadline, seconds) and pid is None:
        raise Exit(NOT_FOUND, f"no cluster is running in {directory.root}")


def _stop(directory: DataDir, pid: int, deadline: float, seconds: float) -> None:
    """Waits until the process has exited: it unlocks its data directory a moment earlier."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if directory.holder() != pid:
            return  # it has ended, and its pid may have been reused
        signal.pidfd_send_signal(process, signal.SIGTERM)
        ended = _ended(process, min(deadline, time.monotonic() + QUIET))
        if not ended and time.monotonic() < deadline:
            print(f"sandpool: waiting for process {pid} and its sandboxes", file=sys.stderr)
            ended = _ended(process, deadline)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise Exit(FAILED, f"process {pid} belongs to another user; stop it as that user") from error
    finally:
        os.close(process)
    if not ended:
        raise Exit(TIMED_OUT, _still_there(pid, seconds))


def _ended(process: int, by: float) -> bool:
    return bool(select.select([process], [], [], max(0.0, by - time.monotonic()))[0])


def _cleared(directory: DataDir, deadline: float, seconds: float) -> bool:
    """Cleans up after a cluster that has ended; whether anything was left."""
    if not directory.node.exists():
        return False
    from sandpool.node.leftovers import clear, find

    left = find(directory.node)
    if not left:
        return False
    try:
        lock = directory.take()
    except DataDirInUse:  # another cluster was just started here, which cleans up too
        return True
    tell_at = time.monotonic() + QUIET
    try:
        while True:
            clear(directory.node)
            left = find(directory.node)
            if not left:
                return True
            if time.monotonic() > deadline:
                raise Exit(TIMED_OUT, _left(directory, left, seconds))
            if time.monotonic() > tell_at:
                print(f"sandpool: waiting for {left}", file=sys.stderr)
                tell_at = time.monotonic() + QUIET
            time.sleep(PAUSE)
    finally:
        lock.release()


def _still_there(pid: int, timeout: float) -> str:
    return (
        f"process {pid} was asked to stop and has not ended within {timeout:g} s. Wait for it with `sandpool down`, "
        f"or end it with `kill -9 {pid}` and run `sandpool down` again: nothing that was acknowledged is lost"
    )


def _left(directory: DataDir, left: Leftovers, timeout: float) -> str:
    return (
        f"the cluster in {directory.root} has ended, but after {timeout:g} s this is left of it: {left}. Find what uses it "
        "(`fuser -vm` for a mount, `cgroup.procs` in a control group), stop that, and run `sandpool down` again"
    )
