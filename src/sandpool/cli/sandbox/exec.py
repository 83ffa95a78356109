"""`sandpool exec` and `sandpool shell`: run a command or a terminal in a claimed sandbox, and the flags they share with `run`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from sandpool.base.errors import SandpoolError
from sandpool.cli.cluster import connected
from sandpool.cli.cluster_flags import ClusterFlags, pairs
from sandpool.cli.completion import claims
from sandpool.cli.error_messages import describe_error
from sandpool.cli.exits import NOT_EXECUTABLE, NOT_THERE, OURS, OUTLASTED, SIGNALLED, USAGE, Exit
from sandpool.cli.objects.resolve import plane_of
from sandpool.cli.units import duration

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
        str, Parameter(group=_COMMAND, show_default=False, help="Working directory. Default: the sandbox's home.")
    ] = ""
    time_limit: Annotated[
        str,
        Parameter(
            group=_COMMAND,
            show_default=False,
            help="Kill the command after this time, such as 90s, and exit with 124.",
        ),
    ] = ""
    stdin: Annotated[
        bool,
        Parameter(
            name=["--stdin", "-i"],
            negative="",
            group=_COMMAND,
            help="Pass standard input on even from a terminal; from a pipe or a file it always is.",
        ),
    ] = False
    tty: Annotated[
        bool,
        Parameter(
            name=["--tty", "-t"],
            negative="",
            group=_COMMAND,
            help="Give the command a terminal, and pass standard input on.",
        ),
    ] = False
    no_stdin: Annotated[bool, Parameter(negative="", group=_COMMAND, help="Do not pass standard input on.")] = False

    def running(self, command: tuple[str, ...]) -> Running:
        if not command or not command[0]:
            raise Exit(USAGE, "name the command after --; for example: -- python3 -c 'print(6 * 7)'")
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
        from sandpool.cli.sandbox.attach import Attachment, raw_mode, started, terminal_size

        if self.tty and not os.isatty(0):
            print("sandpool: standard input is not a terminal, so the command gets none either", file=sys.stderr)
            return replace(self, tty=False).run(plane)
        screen = (0, 1, 2) if self.tty else ()
        keys = raw_mode(0) if self.tty else nullcontext()
        with started(plane, self.argv, self.spec(terminal_size(*screen))) as program, keys:
            end = Attachment(program, 0 if self.input else None, screen=screen).run()
        if end.timed_out:
            print(
                f"sandpool: the command took longer than --time-limit {self.limit:g}s and was killed", file=sys.stderr
            )
            return OUTLASTED
        if end.out_of_memory:
            print("sandpool: the sandbox ran out of memory, and the command was killed", file=sys.stderr)
        return end.code


def _piped(descriptor: int) -> bool:
    """Whether stdin is open and not a terminal."""
    try:
        return not os.isatty(descriptor) and bool(os.fstat(descriptor))
    except OSError:  # closed
        return False


Name = Annotated[str, Parameter(completer=claims, help="A claim, or sandbox/NAME.")]
SHELL = ("/bin/sh", "-c", 'exec "$(command -v bash || echo sh)" -l')
"""bash if the sandbox has it, else sh."""


def exec_(
    name: Name,
    /,
    *command: Annotated[str, Parameter(help="After --: the program and its arguments, run as is, without a shell.")],
    how: CommandFlags = CommandFlags(),
    where: ClusterFlags = ClusterFlags(),
) -> int:
    """Run a command in a sandbox as if it ran locally, with its output, piped input and signals.

    Exits with the command's exit code, or with 127 if there is no such program, 126 if it cannot be executed, 124 after
    --time-limit, and 125 if sandpool itself failed.
    """
    running = how.running(command)
    with ours(), connected(where) as cluster:
        return running.run(plane_of(cluster, name))


def shell(
    name: Name,
    /,
    *,
    cwd: Annotated[str, Parameter(show_default=False, help="Working directory. Default: the sandbox's home.")] = "",
    where: ClusterFlags = ClusterFlags(),
) -> int:
    """Open a terminal in a sandbox: bash if available, else sh. Leaving it ends everything that runs in it.

    Exits with the shell's exit code, or with 125 if sandpool itself failed.
    """
    with ours(), connected(where) as cluster:
        return Running(SHELL, cwd=cwd, input=True, tty=True).run(plane_of(cluster, name))


@contextmanager
def ours() -> Iterator[None]:
    """Errors of sandpool itself exit with 125."""
    try:
        yield
    except Exit as end:
        kept = end.code in (USAGE, NOT_EXECUTABLE, NOT_THERE) or end.code > SIGNALLED
        raise (end if kept else Exit(OURS, end.message)) from end
    except SandpoolError as error:
        raise Exit(OURS, describe_error(error)) from error
