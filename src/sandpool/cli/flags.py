"""The flags that several commands share, spelled and explained once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from sandpool.assembly.data_dir import DataDir, default_data_dir

DataDirFlag = Annotated[
    Path | None,
    Parameter(
        name="--data-dir",
        env_var="SANDPOOL_DATA_DIR",
        show_default=False,
        help="Where the cluster keeps its data. Default: sandpool in the user's data folder.",
    ),
]
OutputFlag = Annotated[
    Literal["table", "json"],
    Parameter(name=["--output", "-o"], help="For people, or for programs."),
]


def data_dir(flag: Path | None) -> DataDir:
    return DataDir((flag or default_data_dir()).expanduser().absolute())
