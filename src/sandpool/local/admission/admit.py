"""Decides whether an object may be stored, and in which form."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sandpool.model.resource import Resource


class FieldValidation(StrEnum):
    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


@dataclass(frozen=True, slots=True)
class Admitted:
    """The object as it will be stored: pruned, defaulted, valid. Unchanged subtrees are the very same objects."""

    body: dict[str, Any]
    warnings: tuple[str, ...] = ()


def admit(
    resource: Resource[Any],
    new: dict[str, Any],
    old: dict[str, Any] | None,
    *,
    subresource: str = "",
    validation: FieldValidation = FieldValidation.WARN,
) -> Admitted:
    """Prunes, defaults and validates `new`, which replaces `old` (None: it is created).

    Unknown fields are dropped, warned about or refused as `validation` says (`strict decoding error: unknown field
    "spec.foo"`, 400 BadRequest); anything else wrong raises Invalid with causes as Kubernetes words them. Subtrees that are the same
    Python object in `old` and `new` were checked when `old` was stored and are not looked at again.
    `new` and `old` are never changed in place.
    """
    raise NotImplementedError
