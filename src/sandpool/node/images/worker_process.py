"""Runs the unpacking process (worker.py) from the event loop: starts it for a layer, and kills it when its caller is done or cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import sandpool
from sandpool.base.errors import NodeError
from sandpool.base.shielded import shielded
from sandpool.node.images.worker import Job

_START = "import sys; sys.path.insert(0, sys.argv.pop()); from sandpool.node.images.worker import main; main()"


@dataclass(frozen=True, slots=True)
class LayerDone:
    """The result of unpacking a layer."""

    files: int
    bytes: int
    skipped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unpacking:
    """The progress of unpacking."""

    at: int  # bytes of the blob read so far
    of: int
    bytes: int  # on disk so far, approximately
    files: int


class LayerRefused(Exception):
    """The layer is invalid, or does not match its digest."""


class LayerTooLarge(LayerRefused):
    """The layer has more bytes, or more files, than the job allows."""

    def __init__(self, message: str, *, files: bool) -> None:
        super().__init__(message)
        self.files = files


class DiskFull(Exception):
    """The disk is full."""


class WorkerProcess:
    """A running unpacking process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def unpack(self, job: Job, report: Callable[[Unpacking], Awaitable[object]]) -> LayerDone:
        """Unpacks one layer; call it for one at a time. `report` is called at intervals with the progress."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(
            ConnectionError
        ):  # the process has exited; what it wrote before, or its exit code, says why
            self._process.stdin.write(msgspec.json.encode(asdict(job)) + b"\n")
            await self._process.stdin.drain()
        async for line in self._process.stdout:
            answer: dict[str, Any] = msgspec.json.decode(line)
            if "at" in answer:
                await report(msgspec.convert(answer, Unpacking))
            else:
                return _outcome(answer)
        code = await self._process.wait()
        raise NodeError(
            "ErrImagePull", f"the process that unpacks layers ended with {code}; is the machine out of memory?"
        )


def _outcome(answer: dict[str, Any]) -> LayerDone:
    match answer.get("failed"):
        case None:
            return msgspec.convert(answer["done"], LayerDone)
        case "bad":
            raise LayerRefused(answer["message"])
        case "much" | "many" as which:
            raise LayerTooLarge(answer["message"], files=which == "many")
        case "full":
            raise DiskFull(answer["message"])
        case _:
            raise OSError(answer["message"])


@contextlib.asynccontextmanager
async def worker() -> AsyncIterator[WorkerProcess]:
    """Starts a worker process and kills it when the block ends."""
    package = str(Path(sandpool.__file__).parents[1])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _START, str(os.getpid()), package),
        stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={"LC_ALL": "C.UTF-8"}, close_fds=True,
    )  # fmt: skip
    try:
        yield WorkerProcess(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()  # safe: between jobs there is no state, and the directory of an unfinished job is removed
        await shielded(process.communicate())  # wait for its end, so that nothing writes to the directory any more
