"""`sandpool run`: a sandbox for one command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from cyclopts import Parameter

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import ClusterFlags, Timeout, pairs, timeout_of
from sandpool.cli.completing import pools
from sandpool.cli.console import Console, Terminal
from sandpool.cli.durations import duration
from sandpool.cli.inside.claim import FOREVER, Labels, Ttl, chosen, give_back
from sandpool.cli.inside.exec import ours
from sandpool.cli.inside.options import CommandFlags, Running
from sandpool.cli.inside.stopping import stoppable


@dataclass(frozen=True, slots=True)
class Run:
    pool: str
    running: Running
    labels: Mapping[str, str] = field(default_factory=dict)
    ttl: float | None = None
    timeout: float | None = 30.0

    def run(self, cluster: Cluster, console: Console) -> int:
        """The command's exit code. The sandbox is given back, whatever happens."""
        from sandpool.sdk._sync.data_plane import DataPlane
        from sandpool.sdk._sync.sandbox import Sandbox

        box = None
        try:
            with console.progress(f"waiting for a sandbox of pool {self.pool}"):
                box = Sandbox.claim(
                    self.pool,
                    labels=self.labels,
                    ttl=self.ttl,
                    timeout=self.timeout or FOREVER,
                    connection=cluster.connection,
                )
            return self.running.run(DataPlane(cluster.connection, box.namespace, box.sandbox))
        finally:
            if box is not None:
                give_back(box, console)


def run(
    pool: Annotated[str, Parameter(completer=pools, help="The pool.")],
    /,
    *command: Annotated[
        str, Parameter(help="After --: the program and its arguments, run as they are, without a shell.")
    ],
    how: CommandFlags = CommandFlags(),
    ttl: Ttl = "",
    label: Labels = (),
    timeout: Timeout = "30s",
    where: ClusterFlags = ClusterFlags(),
) -> int:
    """Take a sandbox from a pool, run a command in it as if it ran here, and give the sandbox back.

    Ends with the command's own exit code; with 127 where there is no such program, 126 where it cannot be run, 124 after
    --time-limit, and 125 where sandpool itself failed: no such pool, or no sandbox within --timeout.
    """
    seconds = duration(ttl, "--ttl") if ttl else None
    options = Run(chosen(pool), how.running(command), pairs(label, "--label"), seconds, timeout_of(timeout))
    with ours(), stoppable(), connected(where) as cluster:
        return options.run(cluster, Terminal())
