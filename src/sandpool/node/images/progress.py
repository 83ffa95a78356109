"""How far a pull is, in a line that people read, a few times a second at most."""

from __future__ import annotations

from collections.abc import Callable

from sandpool.node.images.source import LayerSource

_EVERY = 0.4  # seconds


class Progress:
    """Counts only what must be fetched; layers that are there already cost nothing."""

    def __init__(
        self, layers: tuple[LayerSource, ...], tell: Callable[[str], object], monotonic: Callable[[], float]
    ) -> None:
        self._sizes = {layer.diff_id: layer.size for layer in layers}
        self._fetched = dict.fromkeys(self._sizes, 0)
        self._done = 0
        self._tell = tell
        self._monotonic = monotonic
        self._next = float("-inf")

    def fetched(self, layer: LayerSource, size: int) -> None:
        self._fetched[layer.diff_id] = size
        total = sum(self._sizes.values())
        self._say(f"pulling layer {self._number()} of {len(self._sizes)}, {amount(sum(self._fetched.values()), total)}")

    def unpacked(self, at: int, of: int) -> None:
        self._say(f"unpacking layer {self._number()} of {len(self._sizes)}, {amount(at, of)}")

    def layer_done(self) -> None:
        self._done += 1

    def _number(self) -> int:
        return min(self._done + 1, len(self._sizes))

    def _say(self, words: str) -> None:
        now = self._monotonic()
        if now >= self._next:
            self._next = now + _EVERY
            self._tell(words)


def amount(part: int, whole: int) -> str:
    """`31 of 80 MB`, in a unit that fits the whole."""
    unit, name = next(((size, name) for size, name in ((10**9, "GB"), (10**6, "MB")) if whole >= size), (1000, "kB"))
    digits = 1 if unit == 10**9 else 0
    return f"{part / unit:.{digits}f} of {whole / unit:.{digits}f} {name}"
