"""On whose account the images of this machine are. Pure.

A layer counts for the tenants (namespaces) whose pods have used an image that holds it, in equal parts: whoever uses what another one
pulled takes part of it over, so that nobody pays alone for what others keep here. Once the operator has brought it, it is the operator's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sandpool.base.shares import OPERATOR


@dataclass(frozen=True, slots=True)
class ImageView:
    id: str
    layers: tuple[str, ...]
    used_at: float
    held: bool = False
    named: bool = True  # a tag that was pulled again leaves a nameless image behind
    imported: bool = False
    tenants: tuple[str, ...] = ()  # whose pods have used it; the operator's is everybody's


class Charges:
    """`held` is what each tenant has, `total` what all layers take. `pinned` layers stay without an image: somebody holds them."""

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
        """As if the image were gone; answers what that frees."""
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
