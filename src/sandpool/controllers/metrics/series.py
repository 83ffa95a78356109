"""The series of histograms, each looked up once: prometheus_client checks names and values of labels at every look-up."""

from __future__ import annotations

from prometheus_client import Histogram


class Series:
    """As many as there are series. Forget them when any series is removed: one that is kept would count unseen."""

    def __init__(self) -> None:
        self._known: dict[tuple[Histogram, tuple[str, ...]], Histogram] = {}

    def of(self, histogram: Histogram, *values: str) -> Histogram:
        found = self._known.get((histogram, values))
        if found is None:
            found = self._known[histogram, values] = histogram.labels(*values)
        return found

    def forget(self) -> None:
        self._known.clear()
