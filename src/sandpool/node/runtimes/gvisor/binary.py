"""Which runsc is used, and whether it is recent enough. Deciding is pure; asking one for its version runs it."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sandpool.base.errors import NodeError

OLDEST = 20240101  # since then: systrap, directfs, overlays of a given size, files of this process for commands
PATIENCE = 20.0
MOST_SAID = 4096
INSTALL = "install a recent one (https://gvisor.dev/docs/user_guide/install), and name it in SANDPOOL_RUNSC if it is not on PATH"


@dataclass(frozen=True, slots=True)
class Runsc:
    path: Path
    version: str


def find(given: Path | None) -> Path:
    """The program that was named, or the first on PATH."""
    found = shutil.which(str(given)) if given is not None else shutil.which("runsc")
    if found is None:
        where = f"{given} is no program" if given is not None else "runsc is not on PATH"
        raise NodeError("NoRunsc", f"{where}; {INSTALL}")
    return Path(found).resolve()


def version_of(said: str) -> str:
    """From the first line of `runsc --version`; empty if it is not runsc's."""
    match = re.match(r"runsc version (\S+)", said)
    return match[1] if match else ""


def release(version: str) -> int | None:
    """The day of a release, as a number; None: not a release, such as one that somebody built."""
    match = re.search(r"(?<!\d)(20\d{6})(?!\d)", version)
    return int(match[1]) if match else None


def judge(path: Path, said: str) -> Runsc:
    """NodeError if it is not runsc, or too old. One without a date is given the benefit of the doubt: the probe really tries."""
    version = version_of(said)
    if not version:
        raise NodeError("NoRunsc", f"{path} does not say what version of runsc it is; {INSTALL}")
    day = release(version)
    if day is not None and day < OLDEST:
        raise NodeError(
            "OldRunsc",
            f"{path} is version {version}, which traces every system call by ptrace and is hundreds of times slower; it must be "
            f"of {OLDEST} or later: {INSTALL}",
        )
    return Runsc(path, version)


async def ask(given: Path | None) -> Runsc:
    path = find(given)
    asked: partial[subprocess.CompletedProcess[bytes]] = partial(
        subprocess.run, [str(path), "--version"], env={}, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False
    )  # fmt: skip
    try:
        done = await asyncio.get_running_loop().run_in_executor(None, asked)
    except OSError as error:
        raise NodeError("NoRunsc", f"{path} cannot be started: {(error.strerror or '').lower()}; {INSTALL}") from error
    except subprocess.TimeoutExpired:
        raise NodeError("NoRunsc", f"{path} --version said nothing for {PATIENCE:.0f} s; {INSTALL}") from None
    return judge(path, done.stdout[:MOST_SAID].decode(errors="replace"))
