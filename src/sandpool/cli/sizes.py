"""Sizes as flags have them."""

from __future__ import annotations

from sandpool.cli.exits import USAGE, Exit


def byte_count(text: str, flag: str) -> int:
    """Exit if it is no size."""
    from sandpool.model.quantities import QuantityError, parse

    try:
        value = parse(text)
    except QuantityError as error:
        raise Exit(USAGE, f"{flag} {text!r} is not a size; write for example 500Mi or 20Gi") from error
    return value.value
