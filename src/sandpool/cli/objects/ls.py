"""`sandpool ls`: lists claims with their state, pool and sandbox."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import AllNamespaces, ClusterFlags, Selector, ShownFlags, Watch
from sandpool.cli.console import Console, Terminal
from sandpool.cli.objects.get import Get
from sandpool.cli.output.formats import Format
from sandpool.cli.output.table import Table
from sandpool.kube.errors import Gone
from sandpool.model.kinds import CLAIMS
from sandpool.model.times import human, since
from sandpool.sdk.claims import SandboxInfo, info_of

Json = dict[str, Any]


HEADER = ("NAME", "STATE", "POOL", "SANDBOX", "AGE", "ENDS")
WIDE = (*HEADER, "REASON")


def row(claim: Json, now: datetime, *, wide: bool = False) -> tuple[str, ...]:
    info = info_of(claim)
    cells = (
        info.name,
        info.state.value,
        info.pool,
        info.sandbox or "<none>",
        since(claim["metadata"].get("creationTimestamp"), now),
        _ends(info, now),
    )
    return (*cells, info.reason) if wide else cells


def known(claim: Json) -> tuple[str, str, str]:
    """The columns whose change prints a new line; not the age."""
    info = info_of(claim)
    return info.state.value, info.sandbox, info.reason


def _ends(info: SandboxInfo, now: datetime) -> str:
    if info.expires is None:
        return "never"
    left = int((info.expires - now).total_seconds())
    return f"in {human(left)}" if left > 0 else f"{human(-left)} ago"


@dataclass(frozen=True, slots=True)
class Ls:
    format: Format
    selector: str = ""
    all_namespaces: bool = False
    watch: bool = False
    headers: bool = True

    def run(self, cluster: Cluster, console: Console) -> None:
        if not self.format.tabular:
            Get(((CLAIMS, ()),), self.format, self.selector, self.all_namespaces, self.watch).run(cluster, console)
            return
        space = "" if self.all_namespaces else cluster.namespace
        header = WIDE if self.format.word == "wide" else HEADER
        table = Table(("NAMESPACE", *header) if self.all_namespaces else header, console.color)
        found = cluster.list(CLAIMS, space, labels=self.selector)
        self._show(console, table, found["items"])
        if not found["items"]:
            where = "anywhere" if self.all_namespaces else f"in namespace {space}"
            console.say(
                f"There are no claims {where}. `sandpool claim POOL` creates one; `sandpool get pools` lists pools."
            )
        if self.watch:
            self._follow(cluster, console, table, space, found)

    def _follow(self, cluster: Cluster, console: Console, table: Table, space: str, found: Json) -> None:
        """Prints a line for each change, except of ages."""
        shown = {item["metadata"]["uid"]: known(item) for item in found["items"]}
        while True:
            try:
                since = found["metadata"]["resourceVersion"]
                for event in cluster.watch(CLAIMS, space, since=since, labels=self.selector):
                    body = event["object"]
                    if event["type"] == "DELETED":
                        body["metadata"].setdefault("deletionTimestamp", "now")
                    if event["type"] == "BOOKMARK" or shown.get(body["metadata"]["uid"]) == known(body):
                        continue
                    shown[body["metadata"]["uid"]] = known(body)
                    self._show(console, table, [body])
            except Gone:
                found = cluster.list(CLAIMS, space, labels=self.selector)
                self._show(
                    console, table, [one for one in found["items"] if shown.get(one["metadata"]["uid"]) != known(one)]
                )

    def _show(self, console: Console, table: Table, claims: Iterable[Json]) -> None:
        now, wide = datetime.now(UTC), self.format.word == "wide"
        rows = [
            (claim["metadata"]["namespace"], *row(claim, now, wide=wide))
            if self.all_namespaces
            else row(claim, now, wide=wide)
            for claim in claims
        ]
        if rows:
            first = table.widths is None
            console.write("".join(f"{line}\n" for line in table.lines(rows, header=first and self.headers)))


def ls(
    *,
    selector: Selector = "",
    all_namespaces: AllNamespaces = False,
    watch: Watch = False,
    shown: ShownFlags = ShownFlags(),
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """List claims with their state, pool, sandbox, age and expiry."""
    options = Ls(shown.format(), selector, all_namespaces, watch, not shown.no_headers)
    with connected(where) as cluster:
        options.run(cluster, Terminal(shown.color))
