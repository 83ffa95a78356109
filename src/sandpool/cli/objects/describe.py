"""`sandpool describe`: everything about one object on one page, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from cyclopts import Parameter

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import AllNamespaces, ClusterFlags, Selector
from sandpool.cli.completing import kinds_and_names
from sandpool.cli.console import Colour, Console, Terminal
from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.kinds import Kind, chosen
from sandpool.cli.objects.describing import described
from sandpool.cli.objects.get import none_there
from sandpool.cli.output.formats import whole
from sandpool.model.kinds import EVENTS

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Describe:
    wanted: tuple[tuple[Kind, tuple[str, ...]], ...]
    selector: str = ""
    all_namespaces: bool = False

    def validate(self) -> None:
        if any(names for _, names in self.wanted) and (self.all_namespaces or self.selector):
            raise Exit(USAGE, "a name is enough to choose: leave out -A and --selector, or the name")

    def run(self, cluster: Cluster, console: Console, now: datetime) -> None:
        first = True
        for kind, names in self.wanted:
            space = "" if self.all_namespaces or not kind.namespaced else cluster.namespace
            if names:
                bodies = [cluster.get(kind, space, name) for name in names]
            else:
                bodies = [whole(kind, item) for item in cluster.list(kind, space, labels=self.selector)["items"]]
            if not bodies:
                console.say(none_there(kind, space))
            for body in bodies:
                console.write("" if first else "\n\n")
                console.write(described(kind, body, events_of(cluster, kind, body), now, color=console.color))
                first = False


def events_of(cluster: Cluster, kind: Kind, body: Json) -> list[Json]:
    """Those about this very object, not about an older one of its name."""
    metadata = body["metadata"]
    fields = f"involvedObject.kind={kind.kind},involvedObject.name={metadata['name']}"
    found = cluster.list(EVENTS, metadata.get("namespace") or "default", fields=fields)["items"]
    uids = (metadata.get("uid"), None, "")
    return [event for event in found if (event.get("involvedObject") or {}).get("uid") in uids]


def describe(
    *what: Annotated[
        str, Parameter(completer=kinds_and_names, help="KIND/NAME..., KIND NAME... or KIND for all of them.")
    ],
    selector: Selector = "",
    all_namespaces: AllNamespaces = False,
    color: Annotated[
        Colour, Parameter(env_var="SANDPOOL_COLOR", help="auto: on a terminal, unless NO_COLOR is set.")
    ] = "auto",
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Tell everything about one object: what it asks for, its conditions, its events, and what to do."""
    options = Describe(tuple(chosen(what)), selector, all_namespaces)
    options.validate()
    with connected(where) as cluster:
        options.run(cluster, Terminal(color), datetime.now(UTC))
