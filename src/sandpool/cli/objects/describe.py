"""`sandpool describe`: one object in detail, with advice on what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from cyclopts import Parameter

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import AllNamespaces, ClusterFlags, Selector
from sandpool.cli.completion import kinds_and_names
from sandpool.cli.console import Colour, Console, Terminal
from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.kinds import Kind, chosen, word
from sandpool.cli.objects.advice import advice
from sandpool.cli.objects.conditions import condition_list
from sandpool.cli.objects.get import none_there
from sandpool.cli.output.formats import whole
from sandpool.cli.output.table import Table, plain
from sandpool.model.kinds import EVENTS
from sandpool.model.times import since

Json = dict[str, Any]


_OWN_SECTIONS = {"apiVersion", "kind", "metadata"}
_SECRET = {"data", "stringData"}


def described(kind: Kind, body: Json, events: Sequence[Json], now: datetime, *, color: bool = False) -> str:
    metadata = body["metadata"]
    sections = [
        list(_head(kind, metadata, now)),
        list(_fields(kind, body)),
        list(_conditions(condition_list(body), now, color)),
        list(_events(events, now)),
        list(_next(kind, metadata, body)),
    ]
    return "\n".join("".join(f"{line}\n" for line in lines) for lines in sections if lines)


def _head(kind: Kind, metadata: Json, now: datetime) -> Iterator[str]:
    yield from _pair("Kind", word(kind))
    yield from _pair("Name", metadata["name"])
    if metadata.get("namespace"):
        yield from _pair("Namespace", metadata["namespace"])
    created = metadata.get("creationTimestamp", "")
    yield from _pair("Created", f"{created} ({since(created, now)} ago)")
    if metadata.get("deletionTimestamp"):
        since_when = (
            f"{metadata['deletionTimestamp']}, waits for {', '.join(metadata.get('finalizers') or ['its end'])}"
        )
        yield from _pair("Being deleted", since_when)
    yield from _many("Labels", metadata.get("labels"))
    yield from _many("Annotations", metadata.get("annotations"))
    owners = [f"{one.get('kind', '')}/{one.get('name', '')}" for one in metadata.get("ownerReferences") or ()]
    if owners:
        yield from _pair("Belongs to", ", ".join(owners))


def _pair(name: str, value: str) -> Iterator[str]:
    yield f"{name + ':':<15}{plain(value)}"


def _many(name: str, values: Json | None) -> Iterator[str]:
    for at, (key, value) in enumerate(sorted((values or {}).items())):
        yield f"{name + ':' if at == 0 else '':<15}{plain(f'{key}={value}')}"


def _fields(kind: Kind, body: Json) -> Iterator[str]:
    for section, value in body.items():
        if section in _OWN_SECTIONS or value in (None, {}, []):
            continue
        if section == "status" and isinstance(value, dict):
            value = {key: part for key, part in value.items() if key != "conditions"}
        if kind.kind == "Secret" and section in _SECRET:
            value = {key: f"{len(str(part))} characters" for key, part in value.items()}
        if value not in ({}, []):
            yield f"{_title(section)}:"
            yield from _tree(value, 1)


def _tree(value: Any, depth: int) -> Iterator[str]:
    """Like YAML, but easier to read: each object of a list begins with a dash."""
    indent = "  " * depth
    if isinstance(value, dict):
        for key, part in value.items():
            if isinstance(part, dict | list) and part:
                yield f"{indent}{plain(str(key))}:"
                yield from _tree(part, depth + 1)
            else:
                yield f"{indent}{plain(str(key))}: {_leaf(part)}"
    elif isinstance(value, list):
        for part in value:
            if isinstance(part, dict | list) and part:
                first, *others = _tree(part, depth + 1)
                yield f"{indent}- {first.lstrip(' ')}"
                yield from others
            else:
                yield f"{indent}- {_leaf(part)}"
    else:
        yield f"{indent}{_leaf(value)}"


def _leaf(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    return plain(str(value)) if value not in ({}, []) else "{}" if value == {} else "[]"


def _title(section: str) -> str:
    return section[:1].upper() + section[1:]


def _conditions(conditions: Sequence[Json], now: datetime, color: bool) -> Iterator[str]:
    if not conditions:
        return
    yield "Conditions:"
    table = Table(("TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"), color)
    rows = [
        (
            str(one.get("type", "")),
            str(one.get("status", "")),
            since(one.get("lastTransitionTime"), now),
            str(one.get("reason") or ""),
            str(one.get("message") or ""),
        )
        for one in conditions
    ]
    yield from (f"  {line}" for line in table.lines(rows, header=True))


def _events(events: Sequence[Json], now: datetime) -> Iterator[str]:
    yield "Events:" if events else "Events:        none, or expired"
    if not events:
        return
    table = Table(("AGE", "TYPE", "REASON", "FROM", "MESSAGE"))
    rows = [_event(one, now) for one in sorted(events, key=moment)]
    yield from (f"  {line}" for line in table.lines(rows, header=True))


def _event(event: Json, now: datetime) -> tuple[str, ...]:
    count = event.get("count") or 1
    age = since(moment(event), now) + (f" (x{count})" if count > 1 else "")
    source = event.get("reportingComponent") or (event.get("source") or {}).get("component") or ""
    return (age, event.get("type") or "", event.get("reason") or "", source, (event.get("message") or "").strip())


def moment(event: Json) -> str:
    """When it happened last."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


def _next(kind: Kind, metadata: Json, body: Json) -> Iterator[str]:
    found = advice(word(kind), metadata.get("namespace", ""), metadata["name"], body)
    if found:
        yield "What to do:"
        yield from (f"  - {plain(sentence)}" for sentence in found)


@dataclass(frozen=True, slots=True)
class Describe:
    wanted: tuple[tuple[Kind, tuple[str, ...]], ...]
    selector: str = ""
    all_namespaces: bool = False

    def validate(self) -> None:
        if any(names for _, names in self.wanted) and (self.all_namespaces or self.selector):
            raise Exit(USAGE, "a name needs no further selection: leave out -A and --selector, or the name")

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
    """Events about exactly this object, not about an older one of its name."""
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
        Colour, Parameter(env_var="SANDPOOL_COLOR", help="auto: color on a terminal, unless NO_COLOR is set.")
    ] = "auto",
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Show one object in detail: its spec, conditions and events, with advice on what to do."""
    options = Describe(tuple(chosen(what)), selector, all_namespaces)
    options.validate()
    with connected(where) as cluster:
        options.run(cluster, Terminal(color), datetime.now(UTC))
