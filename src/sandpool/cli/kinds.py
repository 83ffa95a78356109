"""The names of kinds on the command line: `claim`, `claims`, `sandboxclaim`, `sandboxclaims.extensions.agents.x-k8s.io`, `po`; and KIND/NAME."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sandpool.cli.exits import USAGE, Exit
from sandpool.model.kinds import ALL, CLAIMS, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.resource import Resource

Kind = Resource[Any]
OURS: dict[str, Kind] = {"claim": CLAIMS, "sandbox": SANDBOXES, "pool": POOLS, "template": TEMPLATES}
"""Our own kinds by their short names, which messages use too."""


def kind_of(text: str) -> Kind:
    """The kind of this name. Exits with a usage error that lists the kinds."""
    asked = text.lower()
    for kind in ALL:
        if asked in _words(kind):
            return kind
    raise Exit(
        USAGE,
        f"{text!r} is not a kind; choose one of {', '.join((*OURS, 'pod', 'node', 'event'))} or another kind of the API",
    )


def word(kind: Kind) -> str:
    """The short name: `claim`, not `sandboxclaim`."""
    return next((ours for ours, resource in OURS.items() if resource == kind), kind.singular)


def plural(kind: Kind) -> str:
    ours = word(kind)
    return kind.plural if ours == kind.singular else f"{ours}s"


def split(text: str, default: Kind | None = None) -> tuple[Kind, str]:
    """KIND/NAME; a bare NAME is of the default kind, if there is one."""
    kind, slash, name = text.partition("/")
    if not slash and default is not None and text:
        return default, text
    if not slash or not name or "/" in name:
        example = f"{word(default or CLAIMS)}/NAME"
        raise Exit(USAGE, f"{text!r} is not an object; write KIND/NAME, for example {example}")
    return kind_of(kind), name


def chosen(words: Sequence[str]) -> Iterator[tuple[Kind, tuple[str, ...]]]:
    """kubectl's grammar: `KIND`, `KIND NAME...`, `KIND,KIND`, or `KIND/NAME...`. Yields each kind and its names."""
    if not words:
        raise Exit(
            USAGE,
            "name a kind: KIND, KIND NAME or KIND/NAME, as in `sandpool get claims` or `sandpool describe pool/python`",
        )
    if any("/" in text for text in words):
        for text in words:
            kind, name = split(text)
            yield kind, (name,)
        return
    kinds, names = [kind_of(part) for part in words[0].split(",")], tuple(words[1:])
    if len(kinds) > 1 and names:
        raise Exit(USAGE, "names need one kind; write KIND/NAME for each of them")
    for kind in kinds:
        yield kind, names


def _words(kind: Kind) -> Iterator[str]:
    yield from (kind.plural, kind.singular, kind.kind.lower(), *kind.short_names, kind.group_resource)
    if kind.group:
        yield f"{kind.singular}.{kind.group}"
        yield f"{kind.plural}.{kind.version}.{kind.group}"
    ours = next((name for name, resource in OURS.items() if resource == kind), None)
    if ours is not None:
        yield from (ours, f"{ours}s")
