"""The flags that several commands share, spelled and explained once."""

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
        help="Where the cluster keeps its data. Default: $SANDPOOL_DATA_DIR, else sandpool in the user's data folder.",
    ),
]
OutputFlag = Annotated[
    Literal["table", "json"],
    Parameter(name=["--output", "-o"], help="For people, or for programs."),
]


def data_dir(flag: Path | None) -> DataDir:
    try:
        return DataDir((flag or default_data_dir()).expanduser().absolute())
    except (RuntimeError, OSError) as error:  # no such user, no home, or the folder one stands in is gone
        raise Exit(USAGE, f"--data-dir {flag or ''}: {error}; name a directory by its whole path") from error
