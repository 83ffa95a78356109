"""`sandpool suspend` and `sandpool resume`: stop a sandbox and say what of it is kept; bring it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import ClusterFlags, Timeout, timeout_of
from sandpool.cli.completing import claims
from sandpool.cli.console import Console, Terminal
from sandpool.cli.objects.sandbox_of import sandbox_of
from sandpool.model.kinds import SANDBOXES
from sandpool.model.sandbox import OperatingMode
from sandpool.sdk.suspension import outlook

Names = Annotated[str, Parameter(completer=claims, help="A claim, or sandbox/NAME.")]
FOREVER = 10.0 * 365 * 86400  # seconds
Waits = Annotated[bool, Parameter(help="Whether to wait until it is done.")]


@dataclass(frozen=True, slots=True)
class Power:
    names: tuple[str, ...]
    mode: OperatingMode
    wait: bool = True
    timeout: float | None = 60.0
    dry_run: bool = False  # only say what would be kept

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
                    cluster.steer(box.name, box.uid, self.mode.value, FOREVER if until.left is None else until.left)
            else:  # the uid: another sandbox of the same name is not meant
                change = {"metadata": {"uid": box.uid}, "spec": {"operatingMode": self.mode.value}}
                cluster.patch(SANDBOXES, cluster.namespace, box.name, change)
            console.write(f"{given}\n")


def suspend(
    name: Names,
    /,
    *others: Names,
    wait: Waits = True,
    timeout: Timeout = "60s",
    dry_run: Annotated[
        bool, Parameter(negative="", help="Only say which files would be kept, and change nothing.")
    ] = False,
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Stop what runs in a sandbox. Says which files are kept, then prints the name when its pod is gone.

    Only files in persistent volumes (volumeClaimTemplates of the template) are there again after `sandpool resume`.
    """
    options = Power((name, *others), OperatingMode.SUSPENDED, wait, timeout_of(timeout), dry_run)
    with connected(where) as cluster:
        options.run(cluster, Terminal())


def resume(
    name: Names, /, *others: Names, wait: Waits = True, timeout: Timeout = "60s", where: ClusterFlags = ClusterFlags()
) -> None:
    """Bring a suspended sandbox back. Prints the name when it is ready."""
    options = Power((name, *others), OperatingMode.RUNNING, wait, timeout_of(timeout))
    with connected(where) as cluster:
        options.run(cluster, Terminal())
