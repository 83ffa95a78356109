"""The recorded truth (answers.yaml), our deliberate differences from it (differences.yaml), and how two answers compare."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from conformance.rest.exchange import Answer

ANSWERS = Path(__file__).with_name("answers.yaml")
DIFFERENCES = Path(__file__).with_name("differences.yaml")


@dataclass(frozen=True)
class Difference:
    """Why we answer one case otherwise: in the parts that `ours` names, or only in the words of messages."""

    reason: str
    ours: Answer
    words: bool = False


@cache
def recorded() -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(ANSWERS.read_text(), Loader=yaml.CSafeLoader)
    return document


@cache
def differences() -> dict[str, Difference]:
    document = yaml.load(DIFFERENCES.read_text(), Loader=yaml.CSafeLoader)
    found: dict[str, Difference] = {}
    for group in document:
        for case in group["cases"]:
            name, ours = case if isinstance(case, list) else (case, {})
            assert name not in found, f"{name!r} is explained twice"
            found[name] = Difference(group["reason"], group.get("ours", {}) | ours, group.get("words", False))
    return found


def expected_of_kubernetes(name: str) -> Answer:
    answer: Answer = recorded()["answers"][name]
    return answer


def expected_of_us(name: str) -> Answer:
    """The recorded answer, with the parts replaced in which we differ on purpose (null: the part is absent)."""
    answer = expected_of_kubernetes(name)
    difference = differences().get(name)
    if difference is None:
        return answer
    if difference.words:
        answer = {part: value for part, value in answer.items() if part != "message"} | {"words": "free"}
    return {part: value for part, value in (answer | difference.ours).items() if value is not None}


def unlike(expected: Answer, got: Answer) -> list[str]:
    """What differs, part by part, in words for the reader of a failed test."""
    free = expected.get("words") == "free"
    parts = {part for part in (*expected, *got) if part != "words" and not (free and part in ("message", "text"))}
    found = []
    for part in sorted(parts):
        want, have = expected.get(part), got.get(part)
        if free and part == "details":
            want, have = _without_words(want), _without_words(have)
        if want != have:
            found.append(f"{part}: expected {want!r}, got {have!r}")
    return found


def _without_words(details: Any) -> Any:
    if not isinstance(details, dict):
        return details
    causes = [
        {part: value for part, value in cause.items() if part != "message"} for cause in details.get("causes", ())
    ]
    return {**details, "causes": causes}
