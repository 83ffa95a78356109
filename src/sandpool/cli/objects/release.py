"""`sandpool release`: releases sandboxes by deleting their claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import ClusterFlags, Selector, Timeout, timeout_of
from sandpool.cli.completion import claims
from sandpool.cli.console import Console, Terminal
from sandpool.cli.exits import NOT_FOUND, USAGE, Exit
from sandpool.cli.kinds import split
from sandpool.cli.objects.conditions import Gone
from sandpool.cli.objects.wait import Wait
from sandpool.kube.errors import NotFound
from sandpool.model.kinds import CLAIMS


@dataclass(frozen=True, slots=True)
class Release:
    names: tuple[str, ...]
    selector: str = ""
    all: bool = False
    wait: bool = True
    ignore_missing: bool = False
    timeout: float | None = 30.0

    def validate(self) -> None:
        if sum((bool(self.names), bool(self.selector), self.all)) != 1:
            raise Exit(USAGE, "name the claims: their names, --selector, or --all; `sandpool ls` lists them")
        for name in self.names:
            if split(name, CLAIMS)[0] != CLAIMS:
                raise Exit(USAGE, f"{name!r} is not a claim; only claims are released. `sandpool ls` lists them")

    def run(self, cluster: Cluster, console: Console) -> None:
        names = [split(name, CLAIMS)[1] for name in self.names] or [
            item["metadata"]["name"] for item in cluster.list(CLAIMS, cluster.namespace, labels=self.selector)["items"]
        ]
        missing = [name for name in names if not self._gone(cluster, console, name)]
        if self.wait:
            until = cluster.deadline(self.timeout)
            for name in names:
                Wait((), Gone(), None).one(cluster, console, CLAIMS, name, until.left)
        if missing and not self.ignore_missing:
            listed = ", ".join(missing)
            raise Exit(
                NOT_FOUND,
                f"namespace {cluster.namespace} has no claim {listed}; `sandpool ls -A` lists the existing ones",
            )

    def _gone(self, cluster: Cluster, console: Console, name: str) -> bool:
        try:
            cluster.delete(CLAIMS, cluster.namespace, name)
        except NotFound:
            return False
        console.write(f"{name}\n")
        return True


def release(
    *names: Annotated[str, Parameter(completer=claims, help="Claims.")],
    selector: Selector = "",
    all_: Annotated[bool, Parameter(name="--all", negative="", help="Every claim in the namespace.")] = False,
    wait: Annotated[bool, Parameter(help="Wait until they are gone.")] = True,
    ignore_not_found: Annotated[bool, Parameter(negative="", help="Do not fail if a claim does not exist.")] = False,
    timeout: Timeout = "30s",
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Release sandboxes: delete claims together with their sandboxes. Prints the names.

    Exits with 3 if one of them does not exist; the others are still released.
    """
    options = Release(names, selector, all_, wait, ignore_not_found, timeout_of(timeout))
    options.validate()
    with connected(where) as cluster:
        options.run(cluster, Terminal())
