"""Which images to remove, and how much of the image disk each tenant is charged for. Pure.

Images in use stay; imported images stay unless asked for. When there is too little room, images of the tenant with the most are removed
first, the longest unused before the others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sandpool.base.shares import OPERATOR, Shares


@dataclass(frozen=True, slots=True)
class ImageView:
    """What pruning needs to know of an image."""

    id: str
    layers: tuple[str, ...]
    used_at: float
    held: bool = False
    named: bool = True  # a tag that was pulled again leaves a nameless image behind
    imported: bool = False
    tenants: tuple[str, ...] = ()  # whose pods have used it; an image of the operator is shared by all


class Charges:
    """How many bytes of images each tenant (namespace) is charged for.

    A layer is charged in equal parts to the tenants whose pods have used an image that contains it: a tenant that uses what another one
    pulled takes over part of it, so that nobody pays alone for what others keep here. What the operator imported is the operator's.

    `held` is what each tenant has, `total` what all layers take. `pinned` layers stay without an image: somebody holds them.
    """

    def __init__(self, images: Iterable[ImageView], sizes: Mapping[str, int], pinned: Collection[str] = ()) -> None:
        self.held: dict[str, int] = {}
        self.total = sum(sizes.values())
        self._sizes = sizes
        self._users: Counter[str] = Counter(set(pinned))  # of each layer: images and holders
        self._tenants: dict[str, Counter[str]] = {}  # of each layer: by how many images
        for image in images:
            for layer in set(image.layers):
                self._users[layer] += 1
                self._tenants.setdefault(layer, Counter()).update(image.tenants)
        for layer in self._tenants:
            self._charge(layer, 1)

    def remove(self, image: ImageView) -> int:
        """Charges as if the image were gone. Returns the bytes that this frees."""
        freed = 0
        for layer in set(image.layers):
            self._charge(layer, -1)
            self._users[layer] -= 1
            self._tenants[layer] -= Counter(image.tenants)
            if self._users[layer]:
                self._charge(layer, 1)
            else:
                freed += self._sizes.get(layer, 0)
        self.total -= freed
        return freed

    def _charge(self, layer: str, sign: int) -> None:
        tenants = self._tenants[layer]
        whose = (OPERATOR,) if OPERATOR in tenants else tuple(tenants)
        for tenant in whose:
            left = self.held.get(tenant, 0) + sign * (self._sizes.get(layer, 0) // len(whose))
            if left:
                self.held[tenant] = left
            else:
                self.held.pop(tenant, None)


@dataclass(frozen=True, slots=True)
class PruneRules:
    """When images are removed."""

    unused_for: float  # seconds
    max_bytes: int
    imported: bool = False  # also remove imported images, which cannot be pulled again


@dataclass(frozen=True, slots=True)
class RoomRequest:
    """A tenant wants room for a pull."""

    tenant: str
    wanted: int
    free: int  # bytes of the disk that pulls may still use
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
    images: Sequence[ImageView], sizes: Mapping[str, int], pinned: Collection[str], asking: RoomRequest
) -> tuple[tuple[str, ...], int]:
    """Returns the images to remove so that a tenant has the room it wants, or as much of it as it may have; and that room. An image is
    removed for another tenant's pull only if each of its users has more than that tenant has and could have already. Images that only the
    tenant itself uses may always be removed for it. Nothing of the operator's is removed."""
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
    """The smallest charge among its users: only a tenant with less may have the image removed."""
    return min((held.get(tenant, 0) for tenant in tenants), default=float("inf"))


class _Candidates:
    """Images that may be removed, by their users."""

    def __init__(self, images: Iterable[ImageView]) -> None:
        self._images: dict[tuple[str, ...], deque[ImageView]] = {}
        for image in sorted(images, key=lambda image: (image.used_at, image.id)):
            self._images.setdefault(tuple(sorted(image.tenants)), deque()).append(image)

    def pop(self, weight: Callable[[tuple[str, ...]], float | None]) -> ImageView | None:
        """The longest unused image of the users with the greatest weight. None if no user has a weight."""
        weights = {tenants: heavy for tenants in self._images if (heavy := weight(tenants)) is not None}
        heaviest = min(weights, key=lambda each: (-weights[each], self._images[each][0].used_at, each), default=None)
        if heaviest is None:
            return None
        images = self._images[heaviest]
        found = images.popleft()
        if not images:
            del self._images[heaviest]
        return found
