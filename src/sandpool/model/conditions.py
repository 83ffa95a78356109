"""Conditions: what is true of an object, since when, and why.

`put` follows the contract: it matches by type, and changes `lastTransitionTime` only when `status` changes. Reasons and messages from
elsewhere must be made to fit the schema first, because one bad reason would make every status write fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Annotated

from sandpool.model.fields import doc, one_of
from sandpool.model.metadata import Model

MAX_REASON = 1024
MAX_MESSAGE = 32768
MAX_TYPE = 316
REASON_PATTERN = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
TYPE_PATTERN = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
_CUT = "... (cut)"


class Truth(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Model, frozen=True):
    """One observation about an object, in the form that all Kubernetes objects share."""

    type: Annotated[str, doc("What is observed, for example Ready.", maxLength=MAX_TYPE, pattern=TYPE_PATTERN)]
    status: Annotated[str, doc("Whether it holds: True, False or Unknown.", enum=one_of(Truth))]
    last_transition_time: Annotated[datetime | None, doc("When status last changed.")]
    reason: Annotated[
        str,
        doc("Why, as one word for programs.", minLength=1, maxLength=MAX_REASON, pattern=REASON_PATTERN),
    ]
    message: Annotated[str, doc("Why, as a sentence for people.", maxLength=MAX_MESSAGE)]
    observed_generation: Annotated[
        int, doc("The metadata.generation that this was observed of.", format="int64", minimum=0)
    ] = 0

    @property
    def true(self) -> bool:
        return self.status == Truth.TRUE


def find(conditions: Iterable[Condition], type_: str) -> Condition | None:
    for condition in conditions:
        if condition.type == type_:
            return condition
    return None


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    for condition in conditions:
        if condition.type == type_:
            return condition.status == "True"
    return False


def put(
    conditions: tuple[Condition, ...],
    type_: str,
    status: Truth | str,
    reason: str,
    message: str,
    *,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    """The conditions with this one replaced in place, or added at the end. Returns the same tuple if nothing differs."""
    old = find(conditions, type_)
    since = old.last_transition_time if old is not None and old.status == status else None
    new = Condition(
        type=type_,
        status=str(status),
        reason=fit_reason(reason),
        message=fit_message(message),
        observed_generation=generation,
        last_transition_time=since or now.replace(microsecond=0),
    )
    if old is None:
        return (*conditions, new)
    if old == new:
        return conditions
    return tuple(new if condition.type == type_ else condition for condition in conditions)


def without(conditions: tuple[Condition, ...], type_: str) -> tuple[Condition, ...]:
    if find(conditions, type_) is None:
        return conditions
    return tuple(condition for condition in conditions if condition.type != type_)


@lru_cache(maxsize=1024)  # few distinct values, used repeatedly
def fit_reason(reason: str, otherwise: str = "Unknown") -> str:
    """A reason that the schema accepts, as close to the given one as possible."""
    word = re.sub(r"[^A-Za-z0-9_,:]", "_", reason)
    word = re.sub(r"^[^A-Za-z]+", "", word)[:MAX_REASON]
    return word.rstrip(",:") or otherwise


def fit_message(message: str) -> str:
    """A message that the schema accepts. The schema counts characters, as we do."""
    if len(message) <= MAX_MESSAGE:
        return message
    return message[: MAX_MESSAGE - len(_CUT)] + _CUT
