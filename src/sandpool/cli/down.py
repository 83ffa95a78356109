"""`sandpool down`: stop the cluster of a data directory and wait until it is gone."""

from __future__ import annotations

import os
import signal
import time
from typing import Annotated

from cyclopts import Parameter

from sandpool.cli.durations import duration
from sandpool.cli.exits import FAILED, NOT_FOUND, TIMED_OUT, Exit
from sandpool.cli.flags import DataDirFlag, data_dir


def down(
    *,
    data_dir_: DataDirFlag = None,
    timeout: Annotated[str, Parameter(help="How long to wait for it to end, such as 30s.")] = "30s",
) -> None:
    """Stop the local cluster. Everything it acknowledged stays in its data directory."""
    directory, seconds = data_dir(data_dir_), duration(timeout, "--timeout", zero=True)
    pid = directory.holder()
    if pid is None:
        raise Exit(NOT_FOUND, f"no cluster runs in {directory.root}")
    if pid == 0:
        raise Exit(FAILED, f"the cluster in {directory.root} is just starting; try again in a moment")
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise Exit(FAILED, f"process {pid} belongs to another user; stop it as that user") from error
    deadline = time.monotonic() + seconds
    while directory.holder() is not None:
        if time.monotonic() > deadline:
            raise Exit(TIMED_OUT, _still_there(pid, seconds))
        time.sleep(0.02)


def _still_there(pid: int, timeout: float) -> str:
    return (
        f"process {pid} was asked to stop and has not ended within {timeout:g} s. Wait for it with `sandpool down`, "
        f"or end it with `kill -9 {pid}`: nothing that was acknowledged is lost"
    )
