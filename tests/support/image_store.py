"""An image store for tests, and what must be true of its folder when nothing is going on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandpool.local.images.options import ImageOptions
from sandpool.local.images.store import ImageStore
from sandpool.loop.clock import Clock, SystemClock
from support.image_merge import merge


@asynccontextmanager
async def image_store(
    folder: Path, options: ImageOptions = ImageOptions(), clock: Clock | None = None
) -> AsyncIterator[ImageStore]:
    store = ImageStore(folder, clock or SystemClock(), options)
    others = set(folder.glob("processes/*"))
    await store.open()
    try:
        yield store
        assert leftovers(folder) == []
    finally:
        await store.close()
    assert set(folder.glob("processes/*")) <= others


def leftovers(folder: Path) -> list[str]:
    """What is unfinished: nothing, unless something is going on."""
    return [str(path.relative_to(folder)) for path in folder.glob("processes/*/work/*")]


def layers(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "layers").iterdir())


def files(layers_: tuple[Path, ...]) -> dict[str, str]:
    """What a sandbox would see."""
    return merge(list(layers_))
