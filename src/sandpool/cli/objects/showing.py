"""Objects of one kind on a console: once as a table, or again and again while they change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sandpool.cli.cluster import Cluster
from sandpool.cli.console import Console
from sandpool.cli.kinds import Kind
from sandpool.cli.output import table as tables
from sandpool.cli.output.formats import Format, line, one, whole
from sandpool.kube.errors import Gone

Json = dict[str, Any]


@dataclass(slots=True)
class Shower:
    """`namespace` "" is every one, and each row then tells its own."""

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
        """What is there, then every change, until interrupted."""
        if name:
            self.cluster.get(self.kind, self.namespace, name)  # says so where there is none
        fields = f"metadata.name={name}" if name else ""
        seen: dict[str, str] = {}  # revision by uid: a look after a lost place shows only what is new
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
