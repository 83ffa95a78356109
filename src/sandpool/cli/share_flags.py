"""Flags about how much all tenants of a local cluster may hold together, and how many claims may wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sandpool.cli.exits import USAGE, Exit

if TYPE_CHECKING:
    from sandpool.controllers.claim.backlog import Bounds
    from sandpool.controlplane.objects.holdings import HoldingLimits

MOST = 10**9
SMALLEST, LARGEST = "1Mi", "1Ti"


@Parameter(name="*")
@dataclass(frozen=True)
class ShareFlags:
    max_sandboxes: Annotated[
        int, Parameter(help="Sandboxes, and pods, of all namespaces together, which share them.")
    ] = 20_000
    max_objects: Annotated[int, Parameter(help="Objects that namespaces share.")] = 100_000
    max_stored_bytes: Annotated[
        str, Parameter(help="Bytes of those objects, such as 256Mi. All of them are in memory.")
    ] = "256Mi"

    max_waiting_claims: Annotated[
        int,
        Parameter(
            help="Claims of all namespaces together that may wait for a sandbox. One more is answered 429, with when to come back."
        ),
    ] = 10_000
    max_wait: Annotated[
        int, Parameter(help="Seconds that a new claim may be expected to wait. Beyond that it is answered 429.")
    ] = 60

    def limits(self) -> HoldingLimits:
        """Exit for a mistake."""
        from sandpool.controlplane.objects.holdings import HoldingLimits

        for flag, number in (("--max-sandboxes", self.max_sandboxes), ("--max-objects", self.max_objects)):
            if not 1 <= number <= MOST:
                raise Exit(USAGE, f"{flag} {number}: choose a number from 1 to {MOST}")
        return HoldingLimits(sandboxes=self.max_sandboxes, objects=self.max_objects, size=_size(self.max_stored_bytes))

    def bounds(self) -> Bounds:
        """What may wait. Exit for a mistake."""
        from sandpool.controllers.claim.backlog import Bounds

        for flag, number in (("--max-waiting-claims", self.max_waiting_claims), ("--max-wait", self.max_wait)):
            if not 1 <= number <= MOST:
                raise Exit(USAGE, f"{flag} {number}: choose a number from 1 to {MOST}")
        return Bounds(self.max_waiting_claims, float(self.max_wait))

    def arguments(self) -> list[str]:
        """The same again, for another run of the command."""
        return [
            f"--max-sandboxes={self.max_sandboxes}",
            f"--max-objects={self.max_objects}",
            f"--max-stored-bytes={self.max_stored_bytes}",
            f"--max-waiting-claims={self.max_waiting_claims}",
            f"--max-wait={self.max_wait}",
        ]


def _size(text: str) -> int:
    from sandpool.model.quantities import QuantityError, parse

    try:
        size = parse(text)
        if not parse(SMALLEST) <= size <= parse(LARGEST):
            raise QuantityError(text)
    except QuantityError:
        raise Exit(
            USAGE, f"--max-stored-bytes {text}: write an amount from {SMALLEST} to {LARGEST}, such as 256Mi"
        ) from None
    return size.value
