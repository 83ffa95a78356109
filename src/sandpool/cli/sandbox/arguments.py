"""Parses `NAME:PATH` and port arguments. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sandpool.cli.exits import USAGE, Exit

STANDARD = "-"


@dataclass(frozen=True, slots=True)
class Place:
    """`name` is a claim, or sandbox/NAME; empty for a path on this machine."""

    path: str
    name: str = ""

    @property
    def inside(self) -> bool:
        return bool(self.name)

    def __str__(self) -> str:
        return f"{self.name}:{self.path}" if self.name else self.path


def place(text: str) -> Place:
    """A colon before the first slash (except that of sandbox/NAME) ends a name; ./a:b is a local file."""
    if not text:
        raise Exit(USAGE, "a path is empty; write PATH, or NAME:PATH for one in a sandbox")
    name, colon, path = text.partition(":")
    named = name.removeprefix("sandbox/").removeprefix("claim/")
    if not colon or not named or "/" in named or named.startswith("."):
        return Place(text)
    return Place(path or ".", name)


def pair(source: str, target: str) -> tuple[Place, Place]:
    one, other = place(source), place(target)
    if one.inside == other.inside:
        where = "both are in sandboxes; copy to this machine first" if one.inside else "neither is in a sandbox"
        raise Exit(USAGE, f"{source} and {target}: {where}. Write one of them as NAME:PATH")
    return one, other


@dataclass(frozen=True, slots=True)
class Forward:
    local: int  # 0: a free one
    remote: int


def forward(text: str) -> Forward:
    """`LOCAL:REMOTE`, `PORT` for the same on both sides, `:REMOTE` for a free one here."""
    local, colon, remote = text.rpartition(":")
    try:
        there = int(remote)
        here = (int(local) if local else 0) if colon else there
    except ValueError:
        there = here = -1
    if not (0 < there < 65536 and 0 <= here < 65536):
        raise Exit(USAGE, f"{text!r} is not a port mapping; write LOCAL:REMOTE, such as 8080:80, or one PORT for both")
    return Forward(here, there)
