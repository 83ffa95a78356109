"""Folders that a layer needs but does not describe, because what it adds is somewhere below.

Overlayfs shows a folder as the topmost layer has it, so such a folder would lose the owner and mode that a lower layer gave it (a home
that its user can no longer write to). What is to be seen is put into one more layer on top, with nothing but folders in it. Blocks.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class UnpackedLayer:
    root: Path
    implied: frozenset[str]  # relative paths; the root itself is the empty one


@dataclass(frozen=True, slots=True)
class Seen:
    """What one layer says of one folder."""

    look: os.stat_result | None  # None: it has no such folder
    blocked: bool = False  # the folder, or one above, is something else here: lower ones do not show
    last: bool = False  # lower ones do not show, though there may be a folder here


def covering_layer(layers: Sequence[UnpackedLayer]) -> bytes:
    """The layer to put on top, as a plain tar; empty if none is needed. Lowest first."""
    wanted = sorted({path for layer in layers for path in layer.implied})
    right = {path: look for path in wanted if (look := hidden_look(layers, path)) is not None}
    needed = {above for path in right for above in _with_those_above(path)}
    out = io.BytesIO()
    if needed:
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(needed):
                look = right.get(path) or shown_look(layers, path)
                archive.addfile(_entry(path, look))
    return out.getvalue()


def hidden_look(layers: Sequence[UnpackedLayer], path: str) -> os.stat_result | None:
    """How a folder should look, if that is not how it does: as the highest layer that describes it says."""
    shown: os.stat_result | None = None
    for layer in reversed(layers):
        seen = look_at(layer.root, path)
        if seen.blocked:
            return None
        if seen.look is not None and path not in layer.implied:
            return seen.look if shown is not None and _differ(shown, seen.look) else None
        shown = shown or seen.look
        if seen.last:
            return None
    return None


def _differ(one: os.stat_result, other: os.stat_result) -> bool:
    """To anybody who wants to use it; its age does not matter."""
    return (one.st_mode, one.st_uid, one.st_gid) != (other.st_mode, other.st_uid, other.st_gid)


def shown_look(layers: Sequence[UnpackedLayer], path: str) -> os.stat_result:
    """How a folder that is there looks: as in the highest layer that has it."""
    return next(look for layer in reversed(layers) if (look := look_at(layer.root, path).look) is not None)


def look_at(root: Path, path: str) -> Seen:
    """Name by name from the root, so that no link is followed."""
    at, last = str(root), _opaque(str(root))
    found = os.lstat(at)
    for name in path.split("/") if path else ():
        at = f"{at}/{name}"
        try:
            found = os.lstat(at)
        except FileNotFoundError:
            return Seen(None, last=last)
        if not stat.S_ISDIR(found.st_mode):
            return Seen(None, blocked=True)
        last = last or _opaque(at)
    return Seen(found, last=last)


def _opaque(path: str) -> bool:
    return any(name.endswith(".overlay.opaque") for name in os.listxattr(path, follow_symlinks=False))


def _with_those_above(path: str) -> list[str]:
    names = path.split("/") if path else []
    return ["/".join(names[:depth]) for depth in range(len(names) + 1)]


def _entry(path: str, look: os.stat_result) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path or ".")
    entry.type = tarfile.DIRTYPE
    entry.mode, entry.uid, entry.gid = stat.S_IMODE(look.st_mode), look.st_uid, look.st_gid
    entry.mtime = look.st_mtime_ns // 10**9
    return entry
