"""`sandpool get`: objects as tables from the server, or in another output format; and following them with `--watch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from cyclopts import Parameter

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import AllNamespaces, ClusterFlags, Selector, ShownFlags, Watch
from sandpool.cli.completion import kinds_and_names
from sandpool.cli.console import Console, Terminal
from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.kinds import Kind, chosen, plural
from sandpool.cli.output import table as tables
from sandpool.cli.output.formats import Format, line, one, several, whole
from sandpool.cli.output.formats import one as shown
from sandpool.kube.errors import Gone

Json = dict[str, Any]


@dataclass(slots=True)
class Shower:
    """`namespace` "": all of them, with a column for the namespace."""

    cluster: Cluster
    console: Console
    kind: Kind
    namespace: str
    format: Format
    selector: str = ""
    headers: bool = True
    _table: tables.Table | None = field(default=None, init=False)
    _definitions: Sequence[Json] = field(default=(), init=False)

    def show(self, definitions: Sequence[Json], rows: Sequence[Json]) -> None:
        """Rows of a table; its header comes once."""
        everywhere = self.kind.namespaced and not self.namespace
        self._definitions = definitions or self._definitions
        chosen = tables.columns(self._definitions, all=self.format.word == "wide")
        first = self._table is None
        if self._table is None:
            names = tables.header(self._definitions, chosen, namespaces=everywhere)
            self._table = tables.Table(names, self.console.color)
        cells = [tables.row(row, chosen, namespaces=everywhere) for row in rows]
        lines = self._table.lines(cells, header=first and self.headers)
        self.console.write("".join(f"{text}\n" for text in lines))

    def watch(self, name: str = "") -> None:
        """The present objects, then every change, until interrupted."""
        if name:
            self.cluster.get(self.kind, self.namespace, name)  # exits if there is none
        fields = f"metadata.name={name}" if name else ""
        seen: dict[str, str] = {}  # revision by uid: a relist shows only what is new
        while True:
            since = self._present(fields, seen)
            try:
                for event in self.cluster.watch(
                    self.kind, self.namespace, since=since, fields=fields, labels=self.selector,
                    table=self.format.tabular,
                ):  # fmt: skip
                    self._changed(event, seen)
            except Gone:
                continue

    def _present(self, fields: str, seen: dict[str, str]) -> str:
        if self.format.tabular:
            found = self.cluster.table(self.kind, self.namespace, fields=fields, labels=self.selector)
            rows = [row for row in found["rows"] if _new(row["object"], seen)]
            if rows:
                self.show(found["columnDefinitions"], rows)
        else:
            found = self.cluster.list(self.kind, self.namespace, fields=fields, labels=self.selector)
            for item in found["items"]:
                if _new(item, seen):
                    self._document(item)
        return str(found["metadata"]["resourceVersion"])

    def _changed(self, event: Json, seen: dict[str, str]) -> None:
        if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
            return
        body = event["object"]
        if self.format.tabular:
            rows = [row for row in body["rows"] if _new(row["object"], seen)]
            if rows:
                self.show(body.get("columnDefinitions") or (), rows)
        elif _new(body, seen):
            self._document(body)

    def _document(self, item: Json) -> None:
        body = whole(self.kind, item)
        if self.format.word == "json":
            self.console.write(line(body))
        elif self.format.word == "yaml":
            self.console.write(f"---\n{one(self.kind, body, self.format)}")
        else:
            text = one(self.kind, body, self.format)
            self.console.write(text if text.endswith("\n") else f"{text}\n")


def _new(body: Json, seen: dict[str, str]) -> bool:
    metadata = body["metadata"]
    uid, revision = metadata.get("uid", ""), metadata.get("resourceVersion", "")
    if not uid or seen.get(uid) != revision:
        seen[uid] = revision
        return True
    return False


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
            raise Exit(USAGE, "use either names or --selector, not both")
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
    """Show objects: claims, sandboxes, pools, templates, pods and others.

    Exits with 3 if a named object does not exist.
    """
    options = Get(tuple(chosen(what)), shown.format(), selector, all_namespaces, watch, not shown.no_headers)
    options.validate()
    with connected(where) as cluster:
        options.run(cluster, Terminal(shown.color))
