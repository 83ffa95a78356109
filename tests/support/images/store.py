"""An image store for tests, and what must be true of its folder when nothing is going on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from sandpool.base.clock import Clock, SystemClock
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.pull_slots import PullSlot, PullSlots
from sandpool.node.images.store import ImageStore
from support.images.merge import merge

LOOPBACK = ("127.0.0.1:*", "127.0.0.2:*", "[::1]:*")
"""Where tests have their registries, on any port."""


@asynccontextmanager
async def image_store(
    folder: Path, options: ImageOptions = ImageOptions(), clock: Clock | None = None
) -> AsyncIterator[ImageStore]:
    """With the options as they are by default, registries on loopback are allowed as well."""
    if options.registries == ImageOptions().registries:
        options = replace(options, registries=(*options.registries, *LOOPBACK))
    store = ImageStore(folder, clock or SystemClock(), options)
    others = set(folder.glob("processes/*"))
    await store.open()
    try:
        yield store
        assert leftovers(folder) == []
    finally:
        await store.close()
    assert set(folder.glob("processes/*")) <= others


def any_place() -> Callable[[], AbstractAsyncContextManager[PullSlot]]:
    """For a document that is large."""
    return partial(PullSlots(1, SystemClock()).acquire, "")


def leftovers(folder: Path) -> list[str]:
    """What is unfinished: nothing, unless something is going on."""
    return [str(path.relative_to(folder)) for path in folder.glob("processes/*/work/*")]


def layers(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "layers").iterdir())


def files(layers_: tuple[Path, ...]) -> dict[str, str]:
    """What a sandbox would see."""
    return merge(list(layers_))
