"""Randomness by purpose: each user of chance has a stream of its own, so that one fault more does not shift all the others."""

from __future__ import annotations

from random import Random


class Streams:
    def __init__(self, seed: int) -> None:
        self._seed = seed

    def of(self, purpose: str) -> Random:
        """Equal for equal seeds and purposes, in every process."""
        return Random(f"{self._seed}/{purpose}")  # noqa: S311  # chance that can be repeated is the point
