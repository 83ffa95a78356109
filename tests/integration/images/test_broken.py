"""Networks that break and registries that lie."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from sandpool.base.errors import NodeError
from sandpool.node.images.options import ImageOptions
from support.clocks.impatient_clock import ImpatientClock
from support.images.files import (
    GZIP_LAYER,
    MadeImage,
    digest,
    encode,
    file,
    layer,
    make_image,
    symlink,
)
from support.images.small_registry import SmallRegistry, small_registry
from support.images.store import image_store, layers

NOISE = os.urandom(400_000)
IMAGE = make_image([file("a", NOISE)])


def put(registry: SmallRegistry, image: MadeImage = IMAGE) -> str:
    registry.blobs |= image.blobs
    registry.manifests["tool", "1"] = (image.media_type, image.manifest)
    return f"{registry.address}/tool:1"


@pytest.mark.parametrize("ranges", [True, False])
async def test_a_download_that_breaks_off_goes_on(tmp_path: Path, ranges: bool) -> None:
    clock = ImpatientClock()
    async with small_registry(ranges=ranges) as registry, image_store(tmp_path / "i", clock=clock) as store:
        name = put(registry)
        skip = len(IMAGE.config)
        registry.cut = [skip, 300_000, 300_000 if not ranges else 50_000]
        got = await store.take(name, holder="a")
        assert (got.rootfs.layers[0] / "a").read_bytes() == NOISE
        asked = [one.range for one in registry.seen if digest(IMAGE.layers[0]) in one.path]
        assert len(asked) == 3
        assert asked[0] == ""
        assert clock.slept == [0.5, 1.0]


async def test_it_gives_up_in_the_end(tmp_path: Path) -> None:
    async with small_registry() as registry, image_store(tmp_path / "i", clock=ImpatientClock()) as store:
        name = put(registry)
        registry.cut = [len(IMAGE.config), 10, 10, 10]
        with pytest.raises(NodeError, match="tried 3 times"):
            await store.take(name, holder="a")
        assert layers(tmp_path / "i") == []
        assert await store.listed() == ()
        assert (await store.take(name, holder="a")).id == IMAGE.id


async def test_a_server_that_stumbles(tmp_path: Path) -> None:
    async with (
        small_registry(fail=[503, 500]) as registry,
        image_store(tmp_path / "i", clock=ImpatientClock()) as store,
    ):
        assert (await store.take(put(registry), holder="a")).id == IMAGE.id


@pytest.mark.parametrize(("status", "why"), [(429, "rate-limited"), (418, "418"), (404, "is the name right")])
async def test_answers_that_are_final(tmp_path: Path, status: int, why: str) -> None:
    async with small_registry(fail=[status]) as registry, image_store(tmp_path / "i") as store:
        with pytest.raises(NodeError, match=why):
            await store.take(put(registry), holder="a")
        assert len(registry.seen) == 1


async def test_nobody_listens(tmp_path: Path) -> None:
    async with small_registry() as registry:
        name = put(registry)
    async with image_store(tmp_path / "i", clock=ImpatientClock()) as store:
        with pytest.raises(NodeError, match="cannot be reached"):
            await store.take(name, holder="a")


async def test_a_registry_that_falls_silent(tmp_path: Path) -> None:
    """It holds the connection and says nothing more."""
    import asyncio

    async with small_registry() as registry:
        over = asyncio.Event()

        async def before(request: object) -> None:
            await over.wait()

        registry.before = before
        options = ImageOptions(silence=0.05, attempts=1)
        async with image_store(tmp_path / "i", options) as store:
            with pytest.raises(NodeError, match="no answer in time"):
                await store.take(put(registry), holder="a")
        over.set()


def spoiled(**changes: object) -> MadeImage:
    """The image of which the manifest says something else about the layer."""
    told = {"mediaType": GZIP_LAYER, "digest": digest(IMAGE.layers[0]), "size": len(IMAGE.layers[0])}
    return make_image([file("a", NOISE)], manifest={"layers": [{**told, **changes}]})


OTHER = gzip.compress(layer([file("a", "other")]), mtime=0)


async def test_a_layer_of_other_content(tmp_path: Path) -> None:
    async with small_registry() as registry, image_store(tmp_path / "i") as store:
        name = put(registry)
        registry.blobs[digest(IMAGE.layers[0])] = bytes(len(IMAGE.layers[0]))
        with pytest.raises(NodeError, match="cannot be used: its digest is"):
            await store.take(name, holder="a")
        assert layers(tmp_path / "i") == []


async def test_a_layer_that_is_longer_than_promised(tmp_path: Path) -> None:
    async with small_registry() as registry, image_store(tmp_path / "i") as store:
        name = put(registry)
        registry.blobs[digest(IMAGE.layers[0])] += bytes(50_000_000)
        with pytest.raises(NodeError, match="more bytes than its descriptor says"):
            await store.take(name, holder="a")


async def test_sizes_in_the_manifest_that_are_wrong(tmp_path: Path) -> None:
    async with small_registry() as registry, image_store(tmp_path / "i", clock=ImpatientClock()) as store:
        for size, why in (
            (10, r"more bytes than its descriptor says \(10\)"),
            (len(IMAGE.layers[0]) + 1, "ended after"),
        ):
            with pytest.raises(NodeError, match=why):
                await store.take(put(registry, spoiled(size=size)), holder="a")


async def test_a_layer_that_is_not_what_the_config_says(tmp_path: Path) -> None:
    """Its own digest is right; what comes out of it is not what the image's id stands for."""
    async with small_registry() as registry, image_store(tmp_path / "i") as store:
        name = put(registry, spoiled(digest=digest(OTHER), size=len(OTHER)))
        registry.blobs[digest(OTHER)] = OTHER
        with pytest.raises(NodeError, match="the image's config says"):
            await store.take(name, holder="a")
        assert layers(tmp_path / "i") == []


async def test_a_config_of_other_content(tmp_path: Path) -> None:
    async with small_registry() as registry, image_store(tmp_path / "i") as store:
        name = put(registry)
        registry.blobs[IMAGE.id] = IMAGE.config.replace(b"/bin/true", b"/bin/evil")
        with pytest.raises(NodeError, match="its descriptor says"):
            await store.take(name, holder="a")


async def test_a_manifest_of_other_content(tmp_path: Path) -> None:
    async with small_registry() as registry, image_store(tmp_path / "i") as store:
        put(registry)
        other = make_image([file("evil")])
        registry.manifests["tool", IMAGE.digest] = (other.media_type, other.manifest)
        with pytest.raises(NodeError, match="its descriptor says"):
            await store.take(f"{registry.address}/tool@{IMAGE.digest}", holder="a")


async def test_indexes_in_each_other(tmp_path: Path) -> None:
    async with small_registry() as registry, image_store(tmp_path / "i") as store:
        inner = IMAGE.manifest
        for _ in range(6):
            entry = {"digest": digest(inner), "size": len(inner)}
            registry.manifests["tool", digest(inner)] = ("", inner)
            inner = encode({"schemaVersion": 2, "manifests": [entry]})
        registry.manifests["tool", "1"] = ("text/plain", inner)
        with pytest.raises(NodeError, match="nested indexes"):
            await store.take(f"{registry.address}/tool:1", holder="a")


async def test_hostile_layers_leave_nothing(tmp_path: Path) -> None:
    """The worker is given what a registry sent; the good layer beside the bad one goes with the next pruning."""
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    bad = [
        [symlink("a", str(tmp_path)), file("a/outside", "x")],
        [file("../../../../../outside", "x")],
        b"no tar at all" * 100,
        layer([file("a", "x" * 5000)])[:2000],
    ]
    async with small_registry() as registry, image_store(tmp_path / "i") as store:
        for entries in bad:
            with pytest.raises(NodeError, match="is refused"):
                await store.take(put(registry, make_image([file("good")], entries)), holder="a")  # type: ignore[arg-type]
        await store.prune()
        assert layers(tmp_path / "i") == []
        assert outside.read_text() == "untouched"
        assert (await store.take(put(registry), holder="a")).id == IMAGE.id
