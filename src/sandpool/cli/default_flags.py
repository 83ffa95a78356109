"""Flags for the default limits and requests of containers whose template sets none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from sandpool.cli.exits import USAGE, Exit
from sandpool.model.container_defaults import (
    STANDARD_LIMITS,
    STANDARD_REQUESTS,
    Amounts,
    AmountsError,
    ContainerDefaults,
    amounts,
)

LIMITS, REQUESTS = "--default-limits", "--default-requests"


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultFlags:
    default_limits: Annotated[
        str,
        Parameter(help="Limits of containers whose template sets none; empty: no limits."),
    ] = STANDARD_LIMITS
    default_requests: Annotated[
        str, Parameter(help="Requests that go with these limits; a resource that is not named requests nothing.")
    ] = STANDARD_REQUESTS

    def arguments(self) -> list[str]:
        """These flags as arguments, for the detached process."""
        return [f"{LIMITS}={self.default_limits}", f"{REQUESTS}={self.default_requests}"]

    def defaults(self) -> ContainerDefaults:
        limits = _read(LIMITS, self.default_limits, STANDARD_LIMITS)
        requests = _read(REQUESTS, self.default_requests, STANDARD_REQUESTS)
        try:
            return ContainerDefaults(limits, requests)
        except AmountsError as error:
            raise Exit(USAGE, f"{REQUESTS}: {error} of {LIMITS}; raise the one, or lower the other") from None


def _read(flag: str, text: str, example: str) -> Amounts:
    try:
        return amounts(text)
    except AmountsError as error:
        raise Exit(USAGE, f"{flag}: {error}; write for example {example}") from None
