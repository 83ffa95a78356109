"""Listing, removing and pruning the images in the image directory.

All functions block; removing takes the lock exclusively and returns when what it removed is really gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandpool.base.errors import SandpoolError
from sandpool.node.images.directory import ImageDirectory, remove_tree
from sandpool.node.images.prune import Charges, ImageView, PruneRules, RoomRequest, plan_prune, plan_room
from sandpool.node.images.records import IMPORTED, HoldRecord, LayerRecord, NameRecord, read_record
from sandpool.node.images.reference import ImageName
from sandpool.node.images.worker import RECORD


class ImageUnknown(SandpoolError):
    """There is no image of that name."""


class ImageHeld(SandpoolError):
    """The image is in use."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One image, as `sandpool image list` shows it."""

    names: tuple[str, ...]
    id: str
    bytes: int  # of all its layers, shared ones included
    layers: int
    at: float  # when it was pulled or imported
    used_at: float
    imported: bool
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed, and the bytes that it freed."""

    images: tuple[str, ...]  # names, or ids of images without a name
    bytes: int


def listed(directory: ImageDirectory) -> tuple[Listed, ...]:
    with directory.locked():
        names = _names(directory)
        holders: dict[str, set[str]] = defaultdict(set)
        for hold in directory.all_holds():
            holders[hold.image].add(hold.holder)
        sizes = _sizes(directory)
        found = []
        for used in directory.all_images():
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


def remove(directory: ImageDirectory, wanted: ImageName | str) -> Removed:
    """Removes an image by name (only that name, if the image has others) or by id or the start of one (with all names)."""
    with directory.locked(exclusive=True):
        names = [name for known in _names(directory).values() for name in known]
        if isinstance(wanted, ImageName):
            going = [name for name in names if name.reference == str(wanted)]
            ids = {name.id for name in going}
        else:
            ids = {used.record.id for used in directory.all_images() if used.record.id.startswith(wanted)}
            going = [name for name in names if name.id in ids]
        if len(ids) != 1:
            raise ImageUnknown(
                f"{'several images begin' if ids else 'no image begins'} with {wanted}; `sandpool image list` shows them"
                if isinstance(wanted, str)
                else f"there is no image {wanted}; `sandpool image list` shows all images"
            )
        id_ = ids.pop()
        last = all(name in going for name in names if name.id == id_)
        holders = sorted(hold.holder for hold in directory.all_holds() if hold.image == id_)
        if last and holders:
            raise ImageHeld(f"image {wanted} is in use by {', '.join(holders[:5])}; remove those first")
        for name in going:
            directory.name_path(name.reference).unlink(missing_ok=True)
        if last:
            directory.image_path(id_).unlink(missing_ok=True)
        freed, trash = _sweep(directory)
    for path in trash:
        remove_tree(path)
    return Removed(tuple(name.reference for name in going) or (id_,), freed)


def prune(directory: ImageDirectory, rules: PruneRules, now: float) -> Removed:
    with directory.locked(exclusive=True):
        names = _names(directory)
        gone = plan_prune(_views(directory, names, directory.all_holds()), _sizes(directory), rules, now)
        freed, trash = _take_out(directory, gone, names)
    for path in trash:
        remove_tree(path)
    return _removed(gone, names, freed)


@dataclass(frozen=True, slots=True)
class RoomMade:
    """The result of making room for a pull."""

    room: int  # for the tenant that asked
    removed: Removed
    charges: dict[str, int]  # what tenants are charged for, now


def make_room(directory: ImageDirectory, each_file: int, asking: RoomRequest, *, really: bool) -> RoomMade:
    """Removes images to make room. `really=False`: computes the result and removes nothing."""
    with directory.locked(exclusive=really):
        names, holds = _names(directory), directory.all_holds()
        views, costs = _views(directory, names, holds), _sizes(directory, each_file)
        pinned = {layer for hold in holds for layer in hold.layers}
        gone, room = plan_room(views, costs, pinned, asking)
        freed, trash = _take_out(directory, gone, names) if gone and really else (0, [])
    for path in trash:
        remove_tree(path)
    taken = set(gone)
    left = [view for view in views if view.id not in taken]
    return RoomMade(room, _removed(gone, names, freed), Charges(left, costs, pinned).held)


def charges(directory: ImageDirectory, each_file: int) -> dict[str, int]:
    """What tenants are charged for. A file counts for at least `each_file` bytes."""
    with directory.locked():
        names, holds = _names(directory), directory.all_holds()
        return Charges(_views(directory, names, holds), _sizes(directory, each_file)).held


def _views(
    directory: ImageDirectory, names: dict[str, list[NameRecord]], holds: Sequence[HoldRecord]
) -> list[ImageView]:
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
        for used in directory.all_images()
    ]


def _take_out(
    directory: ImageDirectory, gone: Iterable[str], names: dict[str, list[NameRecord]]
) -> tuple[int, list[Path]]:
    for id_ in gone:
        for name in names.get(id_, ()):
            directory.name_path(name.reference).unlink(missing_ok=True)
        directory.image_path(id_).unlink(missing_ok=True)
    return _sweep(directory)


def _removed(gone: Sequence[str], names: dict[str, list[NameRecord]], freed: int) -> Removed:
    references = [name.reference for id_ in gone for name in names.get(id_, ())]
    return Removed((*references, *(id_ for id_ in gone if id_ not in names)), freed)


def _names(directory: ImageDirectory) -> dict[str, list[NameRecord]]:
    found: dict[str, list[NameRecord]] = defaultdict(list)
    for name in directory.all_names():
        found[name.id].append(name)
    return found


def _sizes(directory: ImageDirectory, each_file: int = 0) -> dict[str, int]:
    """The size of every layer. A file counts for at least `each_file` bytes."""
    records = (read_record(path / RECORD, LayerRecord) for path in directory.layers.iterdir())
    return {record.diff_id: max(record.bytes, record.files * each_file) for record in records if record is not None}


def _sweep(directory: ImageDirectory) -> tuple[int, list[Path]]:
    """Throws away layers that no image and no holder needs. Returns their bytes and paths. With the lock held exclusively."""
    needed = {layer for used in directory.all_images() for layer in used.record.layers}
    needed |= {layer for hold in directory.all_holds() for layer in hold.layers}
    kept = {directory.layer(diff_id).name for diff_id in needed}
    freed, trash = 0, []
    for path in list(directory.layers.iterdir()):
        if path.name not in kept:
            record = read_record(path / RECORD, LayerRecord)
            freed += record.bytes if record is not None else 0
            trash.append(directory.throw_away(path))
    return freed, trash
