"""Runs `sandpool load` as a user does, and reads what it prints. What it says on stderr is shown only if it fails."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from sandpool.base.errors import SandpoolError

LONGEST = 1800.0
"""Seconds after which a run is given up: far longer than any takes."""


class Failed(Exception):
    """A run gave no result; the message says why."""


TROUBLES = (Failed, SandpoolError, OSError, AssertionError, ExceptionGroup)
"""What may go wrong with one run and is no reason to end the others; a TimeoutError is an OSError."""


def written(arguments: Sequence[str]) -> str:
    """The command, as one would type it."""
    return f"sandpool load {shlex.join(arguments)}"


async def load(*arguments: str, timeout: float = LONGEST) -> dict[str, Any]:
    """One run of `sandpool load`. A result with failed claims is a result."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandpool", "load", *arguments, "--quiet", "--output", "json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "SANDPOOL_POOL": "none"},  # a first pool of its own would be in the measurement
    )
    try:
        async with asyncio.timeout(timeout):
            out, said = await child.communicate()
    except BaseException:
        await _end(child)
        raise
    try:
        found: dict[str, Any] = msgspec.json.decode(out)
    except msgspec.DecodeError:
        text = said.decode(errors="replace").strip() or f"it ended with {child.returncode} and said nothing"
        raise Failed(f"{written(arguments)}: {text}") from None
    return found


async def _end(child: asyncio.subprocess.Process) -> None:
    """SIGTERM lets it clear away what it made."""
    if child.returncode is None:
        child.terminate()
        try:
            await asyncio.wait_for(child.wait(), 120)
        except TimeoutError:
            child.kill()
            await child.wait()


def in_order(work: Coroutine[Any, Any, int]) -> int:
    """The exit code: 1 if some runs failed. SIGTERM is as good as Ctrl-C: clusters and servers are ended, not left behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return 1 if asyncio.run(work) else 0
    except KeyboardInterrupt:
        say("interrupted; what was measured until now is written")
        return 130


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
