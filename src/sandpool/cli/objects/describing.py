"""An object told to people: what it is, what it asks for, how it is, what happened to it, what to do. Pure: now is an argument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sandpool.cli.kinds import Kind, word
from sandpool.cli.objects.advice import advice
from sandpool.cli.objects.waiting import condition_list
from sandpool.cli.output.table import Table, plain
from sandpool.controlplane.apiserver.tables.age import since

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
    """Like YAML, easier on the eyes: a list of objects is set off by dashes."""
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
    yield "Events:" if events else "Events:        none that are still kept"
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
