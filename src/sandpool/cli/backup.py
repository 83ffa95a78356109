"""`sandpool backup` and `sandpool restore`: the whole state as one file, while the cluster runs or while it does not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sandpool.cli.flags import DataDirFlag, data_dir
from sandpool.cli.http import request

FileArgument = Annotated[Path, Parameter(help="The backup file.")]


def backup(file: FileArgument, /, *, data_dir_: DataDirFlag = None) -> None:
    """Write a consistent copy of every object to a file. The cluster may be running."""
    from sandpool.assembly.backups import write_backup

    count = write_backup(data_dir(data_dir_), file)
    print(f"{count} objects written to {file}")


def restore(file: FileArgument, /, *, data_dir_: DataDirFlag = None) -> None:
    """Make every object what it was when the backup was written. The cluster may be running.

    Objects that the backup does not hold are removed. It happens in one step, as ordinary changes that watchers see;
    revisions go on counting upwards.
    """
    from sandpool.assembly.backups import RESTORE_PATH, lay_down, restore_offline

    directory = data_dir(data_dir_)
    running = directory.read_running()
    if running is None:
        outcome = asyncio.run(restore_offline(directory, file))
    else:
        with lay_down(directory, file) as name:
            outcome = request(running, "POST", RESTORE_PATH, {"name": name}, timeout=300.0)
    print(f"restored from {file}: {outcome['written']} objects written, {outcome['removed']} removed")
