"""The unpacking process as the event loop sees it: started for a layer, killed if nobody waits for it any more."""

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
from sandpool.node.images.uninterrupted import uninterrupted
from sandpool.node.images.worker import Job

_START = "import sys; sys.path.insert(0, sys.argv.pop()); from sandpool.node.images.worker import main; main()"


@dataclass(frozen=True, slots=True)
class LayerDone:
    files: int
    bytes: int
    skipped: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unpacking:
    """How far it is."""

    at: int  # bytes that were read
    of: int
    bytes: int  # that are on the disk by now, about
    files: int


class LayerRefused(Exception):
    """The layer is not what it must be."""


class LayerTooLarge(LayerRefused):
    """It holds more bytes, or more files, than the job lets come out."""

    def __init__(self, message: str, *, files: bool) -> None:
        super().__init__(message)
        self.files = files


class DiskFull(Exception):
    """There is no room."""


class WorkerProcess:
    def __init__(self, process: Process) -> None:
        self._process = process

    async def unpack(self, job: Job, told: Callable[[Unpacking], Awaitable[object]]) -> LayerDone:
        """One at a time. `told` hears now and then how far it is."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(ConnectionError):  # its last words say more
            self._process.stdin.write(msgspec.json.encode(asdict(job)) + b"\n")
            await self._process.stdin.drain()
        async for line in self._process.stdout:
            answer: dict[str, Any] = msgspec.json.decode(line)
            if "at" in answer:
                await told(msgspec.convert(answer, Unpacking))
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
    """Ends with the block, at once if the block is left by an error or a cancellation."""
    package = str(Path(sandpool.__file__).parents[1])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _START, str(os.getpid()), package),
        stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={"LC_ALL": "C.UTF-8"}, close_fds=True,
    )  # fmt: skip
    try:
        yield WorkerProcess(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()  # between jobs it has nothing to lose, and in the middle of one its folder goes too
        await uninterrupted(process.communicate())  # or its folder could still be written to
