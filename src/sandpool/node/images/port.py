"""What the backends ask of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sandpool.node.images.image import Image


@dataclass(frozen=True, slots=True)
class Credential:
    """How to log in to one registry; never shown."""

    registry: str
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)


class Images(Protocol):
    async def take(
        self,
        reference: str,
        *,
        holder: str,
        tenant: str = "",
        policy: str = "",
        credentials: Sequence[Credential] = (),
        progress: Callable[[str], object] = lambda words: None,
    ) -> Image:
        """The image, pulled if it must be (`policy`: Always, IfNotPresent, Never, or empty for what the tag implies). It stays
        as long as a holder holds it; the same holder may take it again. Several who want the same image at once share one
        pull. `tenant` is on whose account it is pulled. NodeError with the reasons that Kubernetes uses: InvalidImageName, ErrImagePull, ErrImageNeverPull."""
        ...

    def release(self, holder: str) -> None:
        """The holder needs nothing any more: also for one whose `take` failed or was cancelled."""
        ...
