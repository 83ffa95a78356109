"""A temporary local cluster: `sandpool up` in its own process and data directory, always removed afterwards."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from sandpool.kube.local_discovery import Running, read_running
from sandpool.load.errors import LoadError

_STARTS = 60.0
_ENDS = 60.0
_LOOK = 0.02
_WORDS = 2000  # characters of its log that an error shows


@asynccontextmanager
async def fresh_cluster(backend: str, flags: Sequence[str] = ()) -> AsyncIterator[Running]:
    """In another process, so that server and load generator do not share a GIL."""
    root = Path(tempfile.mkdtemp(prefix="sandpool-load-", dir=on_disk()))
    try:
        data = root / "data"
        command = [sys.executable, "-m", "sandpool", "up", "--data-dir", str(data), "--port", "0"]
        with (root / "log").open("wb") as log:
            child = await asyncio.create_subprocess_exec(
                *command,
                f"--backend={backend}",
                *flags,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the generator, which stops the cluster when it is done
            )
        try:
            yield await _ready(child, data, root / "log")
        finally:
            await _end(child)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def on_disk() -> str | None:
    """The usual temporary directory is often in memory, where fsync costs nothing; unless TMPDIR is set, data goes to a disk."""
    disk = "/var/tmp"  # noqa: S108 - mkdtemp makes a directory of our own in it
    return disk if not os.environ.get("TMPDIR") and os.access(disk, os.W_OK) else None


async def _ready(child: asyncio.subprocess.Process, data: Path, log: Path) -> Running:
    """`running.json` is written when everything runs, so its presence means ready."""
    try:
        async with asyncio.timeout(_STARTS):
            while True:
                if child.returncode is not None:
                    raise LoadError(f"the temporary cluster did not start:\n{_last_words(log)}")
                running = read_running(data)
                if running is not None and running.pid == child.pid:
                    return running
                await asyncio.sleep(_LOOK)
    except TimeoutError:
        raise LoadError(f"the temporary cluster did not start within {_STARTS:g} s:\n{_last_words(log)}") from None


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is not None:
        return
    child.terminate()
    try:
        async with asyncio.timeout(_ENDS):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()
        raise LoadError(f"the temporary cluster (process {child.pid}) did not end and was killed") from None
    except BaseException:  # a second Ctrl-C: kill at once
        child.kill()
        raise


def _last_words(log: Path) -> str:
    try:
        return log.read_text(errors="replace")[-_WORDS:].strip() or "it printed nothing"
    except OSError:
        return "it printed nothing"
