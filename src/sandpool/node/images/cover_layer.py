"""The cover layer: one more layer on top that restores the directories a layer implies but does not describe.

Overlayfs shows a directory as the topmost layer has it, so an implied directory would lose the owner and mode that a lower layer gave it (a
home that its user can no longer write to). The cover layer holds nothing but directories, as they should look. Blocks.
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
    """A layer on disk, and the directories in it that no entry described."""

    root: Path
    implied: frozenset[str]  # relative paths; the empty path is the root


@dataclass(frozen=True, slots=True)
class Seen:
    """What one layer has of one directory."""

    look: os.stat_result | None  # None: it has no such directory
    blocked: bool = False  # the path, or a parent, is no directory here: lower layers are hidden
    last: bool = False  # opaque: lower layers are hidden, though there may be a directory here


def covering_layer(layers: Sequence[UnpackedLayer]) -> bytes:
    """The cover layer as a plain tar; empty if none is needed. `layers`: lowest first."""
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
    """The mode and owner that a directory should have, from the highest layer that describes it; None if it has them."""
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
    """Whether mode or owner differ; times do not matter."""
    return (one.st_mode, one.st_uid, one.st_gid) != (other.st_mode, other.st_uid, other.st_gid)


def shown_look(layers: Sequence[UnpackedLayer], path: str) -> os.stat_result:
    """How overlayfs shows a directory: as in the highest layer that has it."""
    return next(look for layer in reversed(layers) if (look := look_at(layer.root, path).look) is not None)


def look_at(root: Path, path: str) -> Seen:
    """Walks component by component from the root, so that no link is followed."""
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
