"""`sandpool top`: CPU and memory usage of sandboxes, from the API server's metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

from cyclopts import Parameter

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import AllNamespaces, ClusterFlags, Selector
from sandpool.cli.completion import claims
from sandpool.cli.console import Console, Terminal
from sandpool.cli.exits import FAILED, NOT_FOUND, Exit
from sandpool.cli.objects.resolve import sandbox_of
from sandpool.cli.output.table import Table
from sandpool.kube.errors import NotFound, Unavailable
from sandpool.model import labels
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.quantities import parse

Json = dict[str, Any]
METRICS = "/apis/metrics.k8s.io/v1beta1"
ABSENT = (
    "this API server has no metrics of pods (metrics.k8s.io). On Kubernetes install metrics-server; on one machine start the "
    "cluster with a backend that runs processes, not hollow or none"
)


@dataclass(frozen=True, slots=True)
class Use:
    namespace: str
    sandbox: str
    claim: str
    cpu: float  # cores
    memory: int  # bytes


@dataclass(frozen=True, slots=True)
class Top:
    names: tuple[str, ...] = ()
    selector: str = ""
    all_namespaces: bool = False
    sort_by: str = "cpu"
    output: str = "table"
    headers: bool = True

    def run(self, cluster: Cluster, console: Console) -> None:
        space = "" if self.all_namespaces else cluster.namespace
        wanted = {sandbox_of(cluster, name).name for name in self.names}
        found = [use for use in self._uses(cluster, space) if not wanted or use.sandbox in wanted]
        if self.names and not found:
            raise Exit(
                NOT_FOUND,
                f"there are no metrics of {', '.join(self.names)} yet; they appear some seconds after a start",
            )
        found.sort(key=lambda use: (-(use.memory if self.sort_by == "memory" else use.cpu), use.namespace, use.sandbox))
        if self.output == "json":
            console.write(json.dumps([document(use) for use in found]) + "\n")
        elif found:
            console.write(table(found, namespaces=self.all_namespaces, headers=self.headers, color=console.color))
        else:
            console.say(
                "There are no metrics: no sandbox is running here. `sandpool get sandboxes -A` lists all of them."
            )

    def _uses(self, cluster: Cluster, space: str) -> list[Use]:
        path = f"{METRICS}/namespaces/{quote(space, safe='')}/pods" if space else f"{METRICS}/pods"
        try:
            measured = cluster.read(f"{path}?{urlencode({'labelSelector': self.selector})}" if self.selector else path)
        except (NotFound, Unavailable) as error:
            raise Exit(FAILED, ABSENT) from error
        boxes = cluster.list(SANDBOXES, space)["items"]
        held = cluster.list(CLAIMS, space)["items"]
        return uses(measured["items"], boxes, held)


def uses(measured: Sequence[Json], boxes: Sequence[Json], held: Sequence[Json]) -> list[Use]:
    """Pods that belong to a sandbox, with its claim, if it has one."""
    owners = {_pod_key(box): box["metadata"]["name"] for box in boxes}
    claimed = {
        (claim["metadata"]["namespace"], ((claim.get("status") or {}).get("sandbox") or {}).get("name")): claim[
            "metadata"
        ]["name"]
        for claim in held
    }
    found = []
    for pod in measured:
        space, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if (sandbox := owners.get((space, name))) is not None:
            cpu, memory = _sum(pod, "cpu"), _sum(pod, "memory")
            found.append(Use(space, sandbox, claimed.get((space, sandbox), ""), cpu, int(memory)))
    return found


def _pod_key(box: Json) -> tuple[str, str]:
    metadata = box["metadata"]
    return metadata["namespace"], (metadata.get("annotations") or {}).get(labels.POD_NAME) or metadata["name"]


def _sum(pod: Json, resource: str) -> float:
    usages: list[Mapping[str, str]] = [one.get("usage") or {} for one in pod.get("containers") or ()]
    return sum(parse(usage[resource]).nanos for usage in usages if resource in usage) / 10**9


def table(found: Sequence[Use], *, namespaces: bool, headers: bool, color: bool) -> str:
    names = ("SANDBOX", "CLAIM", "CPU(cores)", "MEMORY(bytes)")
    shown = Table(("NAMESPACE", *names) if namespaces else names, color)
    rows = []
    for use in found:
        cells = (use.sandbox, use.claim or "<none>", f"{round(use.cpu * 1000)}m", f"{use.memory // (1 << 20)}Mi")
        rows.append((use.namespace, *cells) if namespaces else cells)
    return "".join(f"{line}\n" for line in shown.lines(rows, header=headers))


def document(use: Use) -> Json:
    return {
        "namespace": use.namespace,
        "sandbox": use.sandbox,
        "claim": use.claim or None,
        "cpu_cores": use.cpu,
        "memory_bytes": use.memory,
    }


def top(
    *names: Annotated[str, Parameter(completer=claims, help="Claims, or sandbox/NAME. Default: all in the namespace.")],
    sort_by: Annotated[Literal["cpu", "memory"], Parameter(help="Sort by this, largest first.")] = "cpu",
    selector: Selector = "",
    all_namespaces: AllNamespaces = False,
    output: Annotated[
        Literal["table", "json"], Parameter(name=["--output", "-o"], help="Output format, for people or for programs.")
    ] = "table",
    no_headers: Annotated[bool, Parameter(negative="", help="Print the table without headers.")] = False,
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Show CPU and memory usage of sandboxes.

    Exits with 1 if the API server has no metrics.
    """
    options = Top(names, selector, all_namespaces, sort_by, output, not no_headers)
    with connected(where) as cluster:
        options.run(cluster, Terminal())
