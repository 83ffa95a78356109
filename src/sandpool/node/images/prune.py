"""Which images go. Pure: what is held stays, what was imported stays unless asked for. When there is too little room, whoever has the
most gives first, the longest unused of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sandpool.base.shares import OPERATOR, Shares
from sandpool.node.images.charges import Charges, ImageView


@dataclass(frozen=True, slots=True)
class PruneRules:
    unused_for: float  # seconds
    max_bytes: int
    imported: bool = False  # whether imported ones may go too: nobody can pull them again


@dataclass(frozen=True, slots=True)
class Asking:
    """A tenant wants room for a pull."""

    tenant: str
    wanted: int
    free: int  # what of the disk pulls may still take
    pulling: Mapping[str, int] = field(default_factory=dict)  # what pulls under way have written, by tenant


def plan_prune(images: Sequence[ImageView], sizes: Mapping[str, int], rules: PruneRules, now: float) -> tuple[str, ...]:
    """The images to remove. `sizes`: bytes of every layer that an image or a holder needs, by diff id."""
    may_go = [image for image in images if not image.held and (rules.imported or not image.imported)]
    over = [image for image in may_go if not image.named or now - image.used_at >= rules.unused_for]
    charges = Charges(images, sizes)
    gone = [image.id for image in sorted(over, key=lambda image: (image.named, image.used_at, image.id))]
    for image in over:
        charges.remove(image)
    gone_already = set(gone)
    left = _Candidates(image for image in may_go if image.id not in gone_already)
    while charges.total > rules.max_bytes:
        victim = left.pop(lambda tenants: _least(tenants, charges.held))
        if victim is None:
            break
        charges.remove(victim)
        gone.append(victim.id)
    return tuple(gone)


def plan_room(
    images: Sequence[ImageView], sizes: Mapping[str, int], pinned: Collection[str], asking: Asking
) -> tuple[tuple[str, ...], int]:
    """The images to remove so that a tenant has the room it wants, or as much of it as it may have; and that room.

    An image goes for another tenant's pull only if each of its users has more than that tenant has and could have already. What nobody but
    the tenant uses is its own to give. Nothing of the operator's goes."""
    charges, tenant, free = Charges(images, sizes, pinned), asking.tenant, asking.free
    left = _Candidates(
        image for image in images if not image.held and not image.imported and OPERATOR not in image.tenants
    )

    def weight(tenants: tuple[str, ...]) -> float | None:
        mine = charges.held.get(tenant, 0) + asking.pulling.get(tenant, 0) + room
        if tenants == (tenant,):
            return mine
        found = _least(tenants, charges.held)
        return found if found > mine else None

    gone = []
    while (room := room_of(tenant, charges.held, asking.pulling, free)) < asking.wanted:
        victim = left.pop(weight)
        if victim is None:
            break
        free += charges.remove(victim)
        gone.append(victim.id)
    return tuple(gone), room


def room_of(tenant: str, stored: Mapping[str, int], pulling: Mapping[str, int], free: int) -> int:
    """How much more a tenant's images may take: no tenant may take the last of the disk from the others (base/shares.py)."""
    if tenant == OPERATOR:
        return free
    shares = Shares(0)
    for held in (stored, pulling):
        for holder, amount in held.items():
            shares.take(holder, amount)
    shares.total = shares.used + free
    return shares.room(tenant)


def _least(tenants: tuple[str, ...], held: Mapping[str, int]) -> float:
    """What the smallest of its users has: nobody else's need is a reason to take an image from it."""
    return min((held.get(tenant, 0) for tenant in tenants), default=float("inf"))


class _Candidates:
    """Images that may go, by their users."""

    def __init__(self, images: Iterable[ImageView]) -> None:
        self._images: dict[tuple[str, ...], deque[ImageView]] = {}
        for image in sorted(images, key=lambda image: (image.used_at, image.id)):
            self._images.setdefault(tuple(sorted(image.tenants)), deque()).append(image)

    def pop(self, weight: Callable[[tuple[str, ...]], float | None]) -> ImageView | None:
        """Of the users with the greatest weight, the longest unused image. None if nobody has any weight."""
        weights = {tenants: heavy for tenants in self._images if (heavy := weight(tenants)) is not None}
        heaviest = min(weights, key=lambda each: (-weights[each], self._images[each][0].used_at, each), default=None)
        if heaviest is None:
            return None
        images = self._images[heaviest]
        found = images.popleft()
        if not images:
            del self._images[heaviest]
        return found
