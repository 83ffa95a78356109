"""One description of a measurement, for everything that measures Sandpool: the published set, the comparison on Kubernetes, single parts.

A scenario is either one `sandpool load` command, run as a user runs it, or a function. `measure` runs scenarios one after the
other, repeats them in alternating order, and writes a series for each.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from sandpool.base.errors import SandpoolError
from sandpool.load.series import OURS, Series, alternated, brief, busy_cores, write

LONGEST = 1800.0
"""Seconds after which a run is given up: far longer than any takes."""

Measurement = dict[str, Any]


class Failed(Exception):
    """A run gave no result; the message says why."""


FAILURES = (Failed, SandpoolError, OSError, AssertionError, ExceptionGroup)
"""Errors that fail one run but not the others; a TimeoutError is an OSError."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is measured and how to repeat it. `load` has the arguments of `sandpool load`; `measure` replaces it if that is not enough."""

    name: str
    title: str
    load: tuple[str, ...] = ()
    measure: Callable[[], Awaitable[Measurement]] | None = None
    by: str = ""  # the command that repeats a `measure`
    repeats: int = 1

    @property
    def command(self) -> str:
        """The command line that repeats it."""
        return self.by or typed(self.load)

    def on(self, *flags: str) -> Scenario:
        """The same load with more flags, such as those that name a cluster."""
        return replace(self, load=(*self.load, *flags))

    async def run(self) -> Measurement:
        return await (self.measure() if self.measure is not None else run_load_command(*self.load))


def typed(arguments: Sequence[str]) -> str:
    return f"sandpool load {shlex.join(arguments)}"


async def run_load_command(*arguments: str, timeout: float = LONGEST) -> Measurement:
    """Runs `sandpool load` in a process of its own and returns its result. A result with failed claims is a result."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandpool", "load", *arguments, "--quiet", "--output", "json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "SANDPOOL_POOL": "none"},  # a first pool would be part of the measurement
    )
    try:
        async with asyncio.timeout(timeout):
            out, said = await child.communicate()
    except BaseException:
        await _end(child)
        raise
    try:
        found: Measurement = msgspec.json.decode(out)
    except msgspec.DecodeError:
        text = said.decode(errors="replace").strip() or f"it exited with {child.returncode} and printed nothing"
        raise Failed(f"{typed(arguments)}: {text}") from None
    return found


async def run_script(*arguments: str) -> Measurement:
    """Runs a Python script that prints what it measured. The measurement is empty: the script prints it."""
    child = await asyncio.create_subprocess_exec(sys.executable, *arguments)
    try:
        code = await child.wait()
    except BaseException:
        await _end(child)
        raise
    if code:
        raise Failed(f"{arguments[0]} exited with {code}")
    return {}


async def _end(child: asyncio.subprocess.Process) -> None:
    """SIGTERM lets it remove what it created."""
    if child.returncode is None:
        child.terminate()
        try:
            await asyncio.wait_for(child.wait(), 120)
        except TimeoutError:
            child.kill()
            await child.wait()


async def measure(
    scenarios: Sequence[Scenario], *, conditions: Mapping[str, Any] | None = None, into: Path | None = None
) -> int:
    """Runs all once, then again backwards, and so on. Returns how many runs failed.

    With `into`, the series of a scenario is written after each of its runs, so that an interruption loses nothing.
    """
    by_name = {each.name: each for each in scenarios}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in by_name}
    failures = 0
    for repeat in range(max((each.repeats for each in scenarios), default=0)):
        for name in alternated(by_name, repeat):
            scenario = by_name[name]
            if repeat >= scenario.repeats:
                continue
            say(f"{name}, run {repeat + 1} of {scenario.repeats}: {scenario.title}")
            try:
                busy = await busy_cores()
                found = {**await scenario.run(), "busy_cores_before": busy}
            except FAILURES as error:
                failures += 1
                say(f"  failed: {error}")
                continue
            runs[name].append(found)
            say(f"  {brief(found)}")
            if into is not None:
                write(_series(scenario, runs[name], conditions or {}), into)
    return failures


def _series(scenario: Scenario, runs: list[dict[str, Any]], conditions: Mapping[str, Any]) -> Series:
    return Series(
        scenario=scenario.name,
        title=scenario.title,
        command=scenario.command,
        sides={OURS: runs},
        conditions=dict(conditions),
    )


def exit_code(work: Coroutine[Any, Any, int]) -> int:
    """Runs `work`, which returns how many runs failed. SIGTERM is handled like Ctrl-C: clusters and servers are stopped, not left behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return 1 if asyncio.run(work) else 0
    except KeyboardInterrupt:
        say("interrupted; the results so far are written")
        return 130


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
