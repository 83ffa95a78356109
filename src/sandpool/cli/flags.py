"""Flags that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from sandpool.cli.exits import USAGE, Exit
from sandpool.controlplane.data_dir import DataDir
from sandpool.kube.local_discovery import default_data_dir

DataDirFlag = Annotated[
    Path | None,
    Parameter(
        name="--data-dir",
        show_default=False,
        help="Where the cluster keeps its data. Default: $SANDPOOL_DATA_DIR, else sandpool in the user's data directory.",
    ),
]
OutputFlag = Annotated[
    Literal["table", "json"],
    Parameter(name=["--output", "-o"], help="Output format, for people or for programs."),
]


def data_dir(flag: Path | None) -> DataDir:
    try:
        return DataDir((flag or default_data_dir()).expanduser().absolute())
    except (RuntimeError, OSError) as error:  # no such user, no home, or the current directory was deleted
        raise Exit(USAGE, f"--data-dir {flag or ''}: {error}; use an absolute path") from error
