"""`sandpool suspend` and `sandpool resume`: suspend shows what is kept before it stops a sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import ClusterFlags, Timeout, timeout_of
from sandpool.cli.completion import claims
from sandpool.cli.console import Console, Terminal
from sandpool.cli.objects.resolve import sandbox_of
from sandpool.model.kinds import SANDBOXES
from sandpool.model.sandbox import OperatingMode
from sandpool.sdk.suspension import outlook

Names = Annotated[str, Parameter(completer=claims, help="A claim, or sandbox/NAME.")]
FOREVER = 10.0 * 365 * 86400  # seconds
Waits = Annotated[bool, Parameter(help="Wait until it is done.")]


@dataclass(frozen=True, slots=True)
class Power:
    names: tuple[str, ...]
    mode: OperatingMode
    wait: bool = True
    timeout: float | None = 60.0
    dry_run: bool = False  # only print what would be kept

    def run(self, cluster: Cluster, console: Console) -> None:
        boxes = [sandbox_of(cluster, name) for name in self.names]
        if self.mode is OperatingMode.SUSPENDED:  # before anything is lost
            for given, box in zip(self.names, boxes, strict=True):
                console.say(f"{given}: {outlook(box.body)}")
        if self.dry_run:
            return
        until = cluster.deadline(self.timeout)
        for given, box in zip(self.names, boxes, strict=True):
            if self.wait:
                with console.progress(f"waiting for {given} to be {self.mode.value.lower()}"):
                    cluster.set_operating_mode(
                        box.name, box.uid, self.mode.value, FOREVER if until.left is None else until.left
                    )
            else:  # the uid: never another sandbox of the same name
                change = {"metadata": {"uid": box.uid}, "spec": {"operatingMode": self.mode.value}}
                cluster.patch(SANDBOXES, cluster.namespace, box.name, change)
            console.write(f"{given}\n")


def suspend(
    name: Names,
    /,
    *others: Names,
    wait: Waits = True,
    timeout: Timeout = "60s",
    dry_run: Annotated[bool, Parameter(negative="", help="Only print which files would be kept.")] = False,
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Stop everything that runs in a sandbox. Prints which files are kept, and the name when its pod is gone.

    Only files in persistent volumes (volumeClaimTemplates of the template) are kept for `sandpool resume`.
    """
    options = Power((name, *others), OperatingMode.SUSPENDED, wait, timeout_of(timeout), dry_run)
    with connected(where) as cluster:
        options.run(cluster, Terminal())


def resume(
    name: Names, /, *others: Names, wait: Waits = True, timeout: Timeout = "60s", where: ClusterFlags = ClusterFlags()
) -> None:
    """Resume a suspended sandbox. Prints the name when it is ready."""
    options = Power((name, *others), OperatingMode.RUNNING, wait, timeout_of(timeout))
    with connected(where) as cluster:
        options.run(cluster, Terminal())
