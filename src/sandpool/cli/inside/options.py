"""How a program is to be run: what `run`, `exec` and `shell` have in common."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from sandpool.cli.cluster_flags import pairs
from sandpool.cli.durations import duration
from sandpool.cli.exits import OUTLASTED, USAGE, Exit
from sandpool.cli.inside import terminal

if TYPE_CHECKING:
    from sandpool.sdk._sync.data_plane import DataPlane

_COMMAND = Group("Command", sort_key=6)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFlags:
    env: Annotated[
        tuple[str, ...], Parameter(name=["--env", "-e"], negative="", group=_COMMAND, help="NAME=VALUE; repeatable.")
    ] = ()
    cwd: Annotated[
        str, Parameter(group=_COMMAND, show_default=False, help="Where it starts. Default: the sandbox's home.")
    ] = ""
    time_limit: Annotated[
        str,
        Parameter(
            group=_COMMAND,
            show_default=False,
            help="How long it may take, such as 90s; then it is ended, and we end with 124.",
        ),
    ] = ""
    stdin: Annotated[
        bool,
        Parameter(
            name=["--stdin", "-i"],
            negative="",
            group=_COMMAND,
            help="Pass our input on also from a terminal; from a pipe or a file it always is.",
        ),
    ] = False
    tty: Annotated[
        bool, Parameter(name=["--tty", "-t"], negative="", group=_COMMAND, help="Give it a terminal, and our input.")
    ] = False
    no_stdin: Annotated[bool, Parameter(negative="", group=_COMMAND, help="Pass no input on.")] = False

    def running(self, command: tuple[str, ...]) -> Running:
        if not command or not command[0]:
            raise Exit(USAGE, "say what to run, after --; for example: -- python3 -c 'print(6 * 7)'")
        if self.no_stdin and (self.stdin or self.tty):
            raise Exit(USAGE, "--no-stdin contradicts --stdin and --tty; leave one of them out")
        limit = duration(self.time_limit, "--time-limit") if self.time_limit else None
        wanted = not self.no_stdin and (self.stdin or self.tty or _piped(0))
        return Running(command, pairs(self.env, "--env"), self.cwd, limit, input=wanted, tty=self.tty)


@dataclass(frozen=True, slots=True)
class Running:
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    limit: float | None = None  # seconds
    input: bool = False
    tty: bool = False

    def spec(self, screen: tuple[int, int]) -> dict[str, Any]:
        """As the daemon in the sandbox reads it."""
        from sandpool.sdk.command import spec_of

        spec = spec_of(list(self.argv), cwd=self.cwd or None, env=self.env, timeout=self.limit)
        if self.input:
            spec["stdin"] = True
        if self.tty:
            spec["terminal"] = {"cols": screen[0], "rows": screen[1]}
            spec["env"] = {"TERM": os.environ.get("TERM") or "xterm", **self.env}
        return spec

    def run(self, plane: DataPlane) -> int:
        """Its exit code."""
        from sandpool.cli.inside.live import Live
        from sandpool.cli.inside.program import started

        if self.tty and not os.isatty(0):
            print("sandpool: our input is no terminal, so the command gets none either", file=sys.stderr)
            return replace(self, tty=False).run(plane)
        screen = (0, 1, 2) if self.tty else ()
        raw = terminal.raw(0) if self.tty else nullcontext()
        with started(plane, self.argv, self.spec(terminal.size(*screen))) as program, raw:
            end = Live(program, 0 if self.input else None, screen=screen).run()
        if end.timed_out:
            print(f"sandpool: it took longer than --time-limit {self.limit:g}s and was ended", file=sys.stderr)
            return OUTLASTED
        if end.out_of_memory:
            print("sandpool: the sandbox's memory was used up, so the command was ended", file=sys.stderr)
        return end.code


def _piped(descriptor: int) -> bool:
    """Whether there is input that is no terminal."""
    try:
        return not os.isatty(descriptor) and bool(os.fstat(descriptor))
    except OSError:  # closed
        return False
