"""Which images go. Pure: what is held stays, what was imported stays unless asked for, the longest unused goes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageView:
    id: str
    layers: tuple[str, ...]
    used_at: float
    held: bool = False
    named: bool = True  # a tag that was pulled again leaves a nameless image behind
    imported: bool = False


@dataclass(frozen=True, slots=True)
class PruneRules:
    unused_for: float  # seconds
    max_bytes: int
    imported: bool = False  # whether imported ones may go too: nobody can pull them again


def plan_prune(images: Sequence[ImageView], sizes: Mapping[str, int], rules: PruneRules, now: float) -> tuple[str, ...]:
    """The images to remove. `sizes`: bytes of every layer that an image or a holder needs, by diff id."""
    users = Counter(layer for image in images for layer in set(image.layers))
    total = sum(sizes.values())
    gone = []
    for image in sorted(images, key=lambda image: (image.named, image.used_at, image.id)):
        if image.held or (image.imported and not rules.imported):
            continue
        old = now - image.used_at >= rules.unused_for
        if image.named and not old and total <= rules.max_bytes:
            continue
        gone.append(image.id)
        users.subtract(set(image.layers))
        total -= sum(sizes.get(layer, 0) for layer in set(image.layers) if users[layer] == 0)
    return tuple(gone)
