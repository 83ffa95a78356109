"""Metrics pages, read: the Prometheus text format reduced to the families that a measurement needs. Pure.

Pages of a Kubernetes API server have a hundred thousand lines; the others are never looked at twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Labels = tuple[tuple[str, str], ...]
Samples = dict[str, dict[Labels, float]]
"""By family, then by labels in the order of their names."""

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+\d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r'\\(["\\n])')


def read_samples(page: str, families: Iterable[str]) -> Samples:
    wanted = tuple(families)
    found: Samples = {name: {} for name in wanted}
    for line in page.splitlines():
        if not line.startswith(wanted):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None or match[1] not in found:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        labels = tuple(sorted((name, _plain(text)) for name, text in _LABEL.findall(match[2] or "")))
        found[match[1]][labels] = value
    return {name: values for name, values in found.items() if values}


def increase(before: Samples, after: Samples, family: str) -> dict[Labels, float] | None:
    """What a counter has counted in between; None if the page does not tell of it. A restart begins at 0."""
    if family not in after:
        return None
    earlier: Mapping[Labels, float] = before.get(family, {})
    found = {}
    for labels, value in after[family].items():
        change = value - earlier.get(labels, 0.0)
        found[labels] = value if change < 0 else change
    return {labels: change for labels, change in found.items() if change}


def label(labels: Labels, name: str) -> str:
    return next((value for key, value in labels if key == name), "")


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text) if "\\" in text else text
