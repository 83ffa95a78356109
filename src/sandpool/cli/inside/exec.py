"""`sandpool exec`: a command in a sandbox that one has. `sandpool shell`: a terminal there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import Parameter

from sandpool.base.errors import SandpoolError
from sandpool.cli.cluster import connected
from sandpool.cli.cluster_flags import ClusterFlags
from sandpool.cli.completing import claims
from sandpool.cli.exits import NOT_EXECUTABLE, NOT_THERE, OURS, SIGNALLED, USAGE, Exit
from sandpool.cli.failures import told
from sandpool.cli.inside.options import CommandFlags, Running
from sandpool.cli.inside.reach import plane_of

Name = Annotated[str, Parameter(completer=claims, help="A claim, or sandbox/NAME.")]
SHELL = ("/bin/sh", "-c", 'exec "$(command -v bash || echo sh)" -l')
"""bash where there is one."""


def exec_(
    name: Name,
    /,
    *command: Annotated[
        str, Parameter(help="After --: the program and its arguments, run as they are, without a shell.")
    ],
    how: CommandFlags = CommandFlags(),
    where: ClusterFlags = ClusterFlags(),
) -> int:
    """Run a command in a sandbox, as if it ran here: its output as it comes, our input from a pipe, signals.

    Ends with the command's own exit code; with 127 where there is no such program, 126 where it cannot be run, 124 after
    --time-limit, and 125 where sandpool itself failed.
    """
    running = how.running(command)
    with ours(), connected(where) as cluster:
        return running.run(plane_of(cluster, name))


def shell(
    name: Name,
    /,
    *,
    cwd: Annotated[str, Parameter(show_default=False, help="Where it starts. Default: the sandbox's home.")] = "",
    where: ClusterFlags = ClusterFlags(),
) -> int:
    """Open a terminal in a sandbox: bash where there is one, else sh. Leaving it ends what runs in it.

    Ends with the shell's exit code, and with 125 where sandpool itself failed.
    """
    with ours(), connected(where) as cluster:
        return Running(SHELL, cwd=cwd, input=True, tty=True).run(plane_of(cluster, name))


@contextmanager
def ours() -> Iterator[None]:
    """What goes wrong in here, other than in the command, ends with 125."""
    try:
        yield
    except Exit as end:
        kept = end.code in (USAGE, NOT_EXECUTABLE, NOT_THERE) or end.code > SIGNALLED
        raise (end if kept else Exit(OURS, end.message)) from end
    except SandpoolError as error:
        raise Exit(OURS, told(error)) from error
