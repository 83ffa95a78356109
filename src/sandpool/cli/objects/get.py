"""`sandpool get`: objects, as tables that the server lays out, or as programs want them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import AllNamespaces, ClusterFlags, Selector, ShownFlags, Watch
from sandpool.cli.completing import kinds_and_names
from sandpool.cli.console import Console, Terminal
from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.kinds import Kind, chosen, plural
from sandpool.cli.objects.showing import Shower
from sandpool.cli.output.formats import Format, several, whole
from sandpool.cli.output.formats import one as shown

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Get:
    wanted: tuple[tuple[Kind, tuple[str, ...]], ...]
    format: Format
    selector: str = ""
    all_namespaces: bool = False
    watch: bool = False
    headers: bool = True

    def validate(self) -> None:
        named = any(names for _, names in self.wanted)
        if named and self.all_namespaces:
            raise Exit(USAGE, "a name is looked up in one namespace: leave out -A, or the name")
        if named and self.selector:
            raise Exit(USAGE, "a name and --selector are two ways to choose; keep one")
        if self.watch and (len(self.wanted) > 1 or any(len(names) > 1 for _, names in self.wanted)):
            raise Exit(USAGE, "--watch follows one kind, or one object; start a second one for the other")

    def run(self, cluster: Cluster, console: Console) -> None:
        if self.watch:
            kind, names = self.wanted[0]
            self._shower(cluster, console, kind).watch(names[0] if names else "")
        elif self.format.tabular:
            self._tables(cluster, console)
        else:
            self._documents(cluster, console)

    def _tables(self, cluster: Cluster, console: Console) -> None:
        any_shown = False
        for kind, names in self.wanted:
            table = self._shower(cluster, console, kind)
            found = [cluster.table(kind, table.namespace, name, labels=self.selector) for name in names or ("",)]
            rows = [row for one in found for row in one["rows"]]
            if rows:
                console.write("\n" if any_shown else "")
                table.show(found[0]["columnDefinitions"], rows)
                any_shown = True
            elif len(self.wanted) == 1:
                console.say(none_there(kind, table.namespace))

    def _documents(self, cluster: Cluster, console: Console) -> None:
        named = [(kind, name) for kind, names in self.wanted for name in names]
        if len(named) == 1 and len(self.wanted) == 1:
            kind, name = named[0]
            console.write(shown(kind, cluster.get(kind, cluster.namespace, name), self.format))
            return
        items: list[tuple[Kind, Json]] = []
        for kind, names in self.wanted:
            space = self._namespace(cluster, kind)
            if names:
                items += [(kind, cluster.get(kind, space, name)) for name in names]
            else:
                found = cluster.list(kind, space, labels=self.selector)["items"]
                items += [(kind, whole(kind, item)) for item in found]
        if self.format.word == "name":
            console.write("".join(shown(kind, item, self.format) for kind, item in items))
        else:
            console.write(several(self.wanted[0][0], [item for _, item in items], self.format))

    def _shower(self, cluster: Cluster, console: Console, kind: Kind) -> Shower:
        return Shower(
            cluster, console, kind, self._namespace(cluster, kind), self.format, self.selector, headers=self.headers
        )

    def _namespace(self, cluster: Cluster, kind: Kind) -> str:
        return "" if self.all_namespaces or not kind.namespaced else cluster.namespace


def none_there(kind: Kind, namespace: str) -> str:
    where = f" in namespace {namespace}" if namespace else ""
    return f"There are no {plural(kind)}{where}."


def get(
    *what: Annotated[str, Parameter(completer=kinds_and_names, help="KIND, KIND NAME..., KIND,KIND or KIND/NAME...")],
    selector: Selector = "",
    all_namespaces: AllNamespaces = False,
    watch: Watch = False,
    shown: ShownFlags = ShownFlags(),
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Show objects: claims, sandboxes, pools, templates, pods and the rest.

    Exits with 3 if a named object is not there.
    """
    options = Get(tuple(chosen(what)), shown.format(), selector, all_namespaces, watch, not shown.no_headers)
    options.validate()
    with connected(where) as cluster:
        options.run(cluster, Terminal(shown.color))
