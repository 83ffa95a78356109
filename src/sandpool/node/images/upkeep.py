"""What is in the folder of images, and taking it out again. All functions block; removing takes the lock exclusively and returns
when what it removed is really gone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandpool.base.errors import SandpoolError
from sandpool.node.images.charges import Charges, ImageView
from sandpool.node.images.folder import ImageFolder, discard
from sandpool.node.images.prune import Asking, PruneRules, plan_prune, plan_room
from sandpool.node.images.records import IMPORTED, HoldRecord, LayerRecord, NameRecord, read
from sandpool.node.images.reference import Name
from sandpool.node.images.worker import RECORD


class ImageUnknown(SandpoolError):
    """There is no image of that name."""


class ImageHeld(SandpoolError):
    """Somebody needs it."""


@dataclass(frozen=True, slots=True)
class Listed:
    names: tuple[str, ...]
    id: str
    bytes: int  # of all its layers, also those that it shares
    layers: int
    at: float  # when it was pulled or imported
    used_at: float
    imported: bool
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    images: tuple[str, ...]  # names, or ids of the nameless
    bytes: int


def listed(folder: ImageFolder) -> tuple[Listed, ...]:
    with folder.locked():
        names = _names(folder)
        holders: dict[str, set[str]] = defaultdict(set)
        for hold in folder.all_holds():
            holders[hold.image].add(hold.holder)
        sizes = _sizes(folder)
        found = []
        for used in folder.all_images():
            record, known = used.record, names.get(used.record.id, [])
            found.append(
                Listed(
                    names=tuple(sorted(name.reference for name in known)),
                    id=record.id,
                    bytes=sum(sizes.get(layer, 0) for layer in set(record.layers)),
                    layers=len(record.layers),
                    at=max((name.at for name in known), default=used.at),
                    used_at=used.at,
                    imported=any(name.origin == IMPORTED for name in known),
                    holders=tuple(sorted(holders.get(record.id, ()))),
                )
            )
        return tuple(sorted(found, key=lambda one: (one.names, one.id)))


def remove(folder: ImageFolder, wanted: Name | str) -> Removed:
    """By a name, which goes alone if the image has others, or by an id or the start of one, with all names."""
    with folder.locked(exclusive=True):
        names = [name for known in _names(folder).values() for name in known]
        if isinstance(wanted, Name):
            going = [name for name in names if name.reference == str(wanted)]
            ids = {name.id for name in going}
        else:
            ids = {used.record.id for used in folder.all_images() if used.record.id.startswith(wanted)}
            going = [name for name in names if name.id in ids]
        if len(ids) != 1:
            raise ImageUnknown(
                f"{'several images begin' if ids else 'no image begins'} with {wanted}; `sandpool image list` shows them"
                if isinstance(wanted, str)
                else f"there is no image {wanted}; `sandpool image list` shows those there are"
            )
        id_ = ids.pop()
        last = all(name in going for name in names if name.id == id_)
        holders = sorted(hold.holder for hold in folder.all_holds() if hold.image == id_)
        if last and holders:
            raise ImageHeld(f"image {wanted} is in use by {', '.join(holders[:5])}; remove those first")
        for name in going:
            folder.name_path(name.reference).unlink(missing_ok=True)
        if last:
            folder.image_path(id_).unlink(missing_ok=True)
        freed, trash = _sweep(folder)
    for path in trash:
        discard(path)
    return Removed(tuple(name.reference for name in going) or (id_,), freed)


def prune(folder: ImageFolder, rules: PruneRules, now: float) -> Removed:
    with folder.locked(exclusive=True):
        names = _names(folder)
        gone = plan_prune(_views(folder, names, folder.all_holds()), _sizes(folder), rules, now)
        freed, trash = _take_out(folder, gone, names)
    for path in trash:
        discard(path)
    return _removed(gone, names, freed)


@dataclass(frozen=True, slots=True)
class Made:
    room: int  # for who asked
    removed: Removed
    charges: dict[str, int]  # what tenants have, now


def make_room(folder: ImageFolder, each_file: int, asking: Asking, *, really: bool) -> Made:
    """Not really: what would be, and nothing is removed."""
    with folder.locked(exclusive=really):
        names, holds = _names(folder), folder.all_holds()
        views, costs = _views(folder, names, holds), _sizes(folder, each_file)
        pinned = {layer for hold in holds for layer in hold.layers}
        gone, room = plan_room(views, costs, pinned, asking)
        freed, trash = _take_out(folder, gone, names) if gone and really else (0, [])
    for path in trash:
        discard(path)
    taken = set(gone)
    left = [view for view in views if view.id not in taken]
    return Made(room, _removed(gone, names, freed), Charges(left, costs, pinned).held)


def charges(folder: ImageFolder, each_file: int) -> dict[str, int]:
    """What tenants have. A file counts for so many bytes at least."""
    with folder.locked():
        names, holds = _names(folder), folder.all_holds()
        return Charges(_views(folder, names, holds), _sizes(folder, each_file)).held


def _views(folder: ImageFolder, names: dict[str, list[NameRecord]], holds: Sequence[HoldRecord]) -> list[ImageView]:
    held = {hold.image for hold in holds}
    return [
        ImageView(
            used.record.id,
            used.record.layers,
            used.at,
            held=used.record.id in held,
            named=used.record.id in names,
            imported=any(name.origin == IMPORTED for name in names.get(used.record.id, ())),
            tenants=used.record.tenants,
        )
        for used in folder.all_images()
    ]


def _take_out(folder: ImageFolder, gone: Iterable[str], names: dict[str, list[NameRecord]]) -> tuple[int, list[Path]]:
    for id_ in gone:
        for name in names.get(id_, ()):
            folder.name_path(name.reference).unlink(missing_ok=True)
        folder.image_path(id_).unlink(missing_ok=True)
    return _sweep(folder)


def _removed(gone: Sequence[str], names: dict[str, list[NameRecord]], freed: int) -> Removed:
    told = [name.reference for id_ in gone for name in names.get(id_, ())]
    return Removed((*told, *(id_ for id_ in gone if id_ not in names)), freed)


def _names(folder: ImageFolder) -> dict[str, list[NameRecord]]:
    found: dict[str, list[NameRecord]] = defaultdict(list)
    for name in folder.all_names():
        found[name.id].append(name)
    return found


def _sizes(folder: ImageFolder, each_file: int = 0) -> dict[str, int]:
    """Of every layer that is there. A file counts for so many bytes at least."""
    records = (read(path / RECORD, LayerRecord) for path in folder.layers.iterdir())
    return {record.diff_id: max(record.bytes, record.files * each_file) for record in records if record is not None}


def _sweep(folder: ImageFolder) -> tuple[int, list[Path]]:
    """Throws away layers that no image and no holder needs; answers their bytes. With the lock held exclusively."""
    needed = {layer for used in folder.all_images() for layer in used.record.layers}
    needed |= {layer for hold in folder.all_holds() for layer in hold.layers}
    kept = {folder.layer(diff_id).name for diff_id in needed}
    freed, trash = 0, []
    for path in list(folder.layers.iterdir()):
        if path.name not in kept:
            record = read(path / RECORD, LayerRecord)
            freed += record.bytes if record is not None else 0
            trash.append(folder.throw_away(path))
    return freed, trash
