"""What came of a plan."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandpool.base.errors import SandpoolError
from sandpool.kube.errors import ApiError, InsufficientStorage, Refused, Unreachable


@dataclass(slots=True)
class Outcome:
    errors: list[SandpoolError] = field(default_factory=list)
    reserved: int = 0  # members that were to go and that a claim holds
    again: bool = False  # something had changed meanwhile: decide again at once
    refused: bool = False  # the server does not accept such members

    def raise_all(self) -> None:
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise ExceptionGroup("several steps failed", self.errors)


def uncertain(error: SandpoolError) -> bool:
    """Whether the request may have been processed although there is no good answer."""
    if isinstance(error, ApiError):
        return error.code >= 500 and not isinstance(error, InsufficientStorage)
    return isinstance(error, Unreachable) and not isinstance(error, Refused)
