"""`sandpool run`: claims a sandbox for one command and releases it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from cyclopts import Parameter

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import ClusterFlags, Timeout, pairs, timeout_of
from sandpool.cli.completion import pools
from sandpool.cli.console import Console, Terminal
from sandpool.cli.sandbox.claim import FOREVER, Labels, Ttl, chosen, give_back, stoppable
from sandpool.cli.sandbox.exec import CommandFlags, Running, ours
from sandpool.cli.units import duration


@dataclass(frozen=True, slots=True)
class Run:
    pool: str
    running: Running
    labels: Mapping[str, str] = field(default_factory=dict)
    ttl: float | None = None
    timeout: float | None = 30.0

    def run(self, cluster: Cluster, console: Console) -> int:
        """The command's exit code. The sandbox is always released."""
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
    *command: Annotated[str, Parameter(help="After --: the program and its arguments, run as is, without a shell.")],
    how: CommandFlags = CommandFlags(),
    ttl: Ttl = "",
    label: Labels = (),
    timeout: Timeout = "30s",
    where: ClusterFlags = ClusterFlags(),
) -> int:
    """Claim a sandbox from a pool, run a command in it as if it ran locally, and release the sandbox.

    Exits with the command's exit code, or with 127 if there is no such program, 126 if it cannot be executed, 124 after
    --time-limit, and 125 if sandpool itself failed: no such pool, or no sandbox within --timeout.
    """
    seconds = duration(ttl, "--ttl") if ttl else None
    options = Run(chosen(pool), how.running(command), pairs(label, "--label"), seconds, timeout_of(timeout))
    with ours(), stoppable(), connected(where) as cluster:
        return options.run(cluster, Terminal())
