"""Where something is in a document, and how Kubernetes writes that down.

While walking, a place is a chain of (parent, step) pairs that costs one small tuple per object or list and nothing per
scalar; it becomes text only when something is wrong there. Rules about single kinds work on text from the start.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Place: TypeAlias = tuple[Any, str | int] | None
"""None is the document itself; else the place above and the field name or list index taken from there."""


def render(place: Place) -> str:
    """`spec.containers[0].name`; the document itself is the empty text."""
    steps: list[str | int] = []
    while place is not None:
        place, step = place
        steps.append(step)
    text = ""
    for step in reversed(steps):
        if type(step) is int:
            text += f"[{step}]"
        else:
            text = f"{text}.{step}" if text else str(step)
    return text


def fields_only(place: Place) -> str:
    """The same without list indexes, as Go's decoder names a field: `spec.containers.name`."""
    steps: list[str] = []
    while place is not None:
        place, step = place
        if type(step) is str:
            steps.append(step)
    return ".".join(reversed(steps))


def entry(field: str, key: str) -> str:
    """One entry of a map, as the rules for built-in kinds write it: `data[key]`."""
    return f"{field}[{key}]"
