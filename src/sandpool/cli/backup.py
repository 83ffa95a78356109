"""`sandpool backup` and `sandpool restore`: all objects as one file, whether or not the cluster is running."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sandpool.cli.flags import DataDirFlag, data_dir
from sandpool.cli.http import request

if TYPE_CHECKING:
    from sandpool.controlplane.backups import Restored

FileArgument = Annotated[Path, Parameter(help="The backup file.")]


def backup(file: FileArgument, /, *, data_dir_: DataDirFlag = None) -> None:
    """Write a consistent copy of every object to a file, with checksums, and read it back. The cluster may be running."""
    from sandpool.controlplane.backups import write_backup

    count = write_backup(data_dir(data_dir_), file)
    print(f"{count} objects written to {file} and read back")


def restore(
    file: FileArgument,
    /,
    *,
    salvage: Annotated[
        bool,
        Parameter(
            negative="",
            help="For a damaged backup: restore the intact objects, list the others, remove nothing.",
        ),
    ] = False,
    data_dir_: DataDirFlag = None,
) -> None:
    """Restore every object to its state in the backup. The cluster may be running.

    The whole backup is checked before anything is changed. Objects that the backup does not contain are removed.
    All changes are one atomic step that watchers see; revisions keep increasing. A damaged data directory is recreated, and its
    damaged files are kept in a subdirectory.
    """
    import msgspec

    from sandpool.controlplane.backups import RESTORE_PATH, Restored, restore_offline, stage_backup

    directory = data_dir(data_dir_)
    running = directory.read_running()
    if running is None:
        done = asyncio.run(restore_offline(directory, file, salvage))
    else:
        with stage_backup(directory, file, salvage) as name:
            asked = {"name": name, "salvage": salvage}
            done = msgspec.convert(request(running, "POST", RESTORE_PATH, asked, timeout=300.0), Restored)
    _tell(file, done)


def _tell(file: Path, done: Restored) -> None:
    print(f"restored from {file}: {done.written} objects written, {done.removed} removed")
    if not done.sealed:
        print(f"{file} was written by an older version and carries no checksums: damage in it may go unnoticed")
    if not done.whole:
        print(
            f"{file} is damaged: nothing was removed, and {len(done.left_out)} of its objects are known to be left out"
        )
    for key in done.left_out:
        print(f"  left out: {key}")
    if done.kept:
        print(f"the data directory was damaged: its former files are in {done.kept}")
