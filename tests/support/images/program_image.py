"""Images with programs of this machine in them, and the libraries that those need: nothing is fetched from anywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.images.files import Entry, MadeImage, file, make_image


def image_of(programs: Sequence[str], *more: Entry) -> MadeImage:
    """Each program where this machine has it."""
    places = {path for program in programs for path in _with_libraries(program)}
    return make_image([*more, *(_copied(path) for path in sorted(places))], run={"Cmd": [programs[0]]})


def _with_libraries(program: str) -> list[str]:
    path = shutil.which(program) or program
    asked = subprocess.run(
        [path], env={"LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )  # fmt: skip
    needed = re.findall(r"(/\S+) \(0x", asked.stdout)
    if not needed:
        pytest.skip(f"{path} of this machine does not say which libraries it needs")
    return [path, *needed]


def _copied(path: str) -> Entry:
    return file(path.lstrip("/"), Path(os.path.realpath(path)).read_bytes(), mode=0o755)
