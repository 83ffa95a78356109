"""Pulling from registries: Debian's docker-registry and the small one of these tests pass the same suite."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from sandpool.base.errors import NodeError
from sandpool.node.images.image import Credential
from sandpool.node.images.options import ImageLimits, ImageOptions
from support.images.files import (
    INDEX,
    MadeImage,
    digest,
    file,
    folder,
    index_of,
    layer,
    make_image,
    removed,
    symlink,
)
from support.images.real_registry import basic, push, put_manifest, real_registry
from support.images.small_registry import PASSWORD, USER, small_registry
from support.images.store import files, image_store, layers

ALICE = ("alice", PASSWORD)


def tool(word: str = "one") -> MadeImage:
    return make_image(
        [folder("etc"), file("etc/a", "a"), file("etc/b", "b"), symlink("sh", "bin/sh")],
        [removed("etc/a"), file("etc/c", word)],
        run={"Entrypoint": ["/sh"], "Env": ["A=b"], "User": "7", "WorkingDir": "/etc"},
    )


@pytest.fixture(params=["small", "real"])
async def registry(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "small":
        async with small_registry() as small:
            yield small.address
    else:
        async with real_registry(tmp_path / "registry") as address:
            yield address


@pytest.fixture(params=["small", "real"])
async def closed_registry(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """One that wants a password."""
    if request.param == "small":
        async with small_registry(login="basic") as small:
            yield small.address
    else:
        async with real_registry(tmp_path / "registry", login="basic") as address:
            yield address


async def test_an_image_is_pulled_whole(registry: str, tmp_path: Path) -> None:
    image = tool()
    await push(registry, "team/tool", "1", image)
    said: list[str] = []
    async with image_store(tmp_path / "images") as store:
        got = await store.take(f"{registry}/team/tool:1", holder="pod", progress=said.append)
        assert got.id == image.id
        assert got.reference == f"{registry}/team/tool:1"
        assert (got.config.entrypoint, got.config.env, got.config.user) == (("/sh",), {"A": "b"}, "7")
        assert files(got.rootfs.layers) == {
            "etc": "folder", "etc/b": "file b", "etc/c": "file one", "sh": "link bin/sh",
        }  # fmt: skip
        assert said[0].startswith("pulling layer 1 of 2, ")


async def test_a_layer_that_is_here_is_not_fetched_again(tmp_path: Path) -> None:
    one, two = tool("one"), tool("two")
    async with small_registry() as registry, image_store(tmp_path / "images") as store:
        await push(registry.address, "tool", "1", one)
        await push(registry.address, "tool", "2", two)
        first = await store.take(f"{registry.address}/tool:1", holder="a")
        registry.seen.clear()
        second = await store.take(f"{registry.address}/tool:2", holder="b")
        assert registry.paths() == [
            "/v2/tool/manifests/2", f"/v2/tool/blobs/{two.id}", f"/v2/tool/blobs/{digest(two.layers[1])}",
        ]  # fmt: skip
        assert first.rootfs.layers[0] == second.rootfs.layers[0]


async def test_policies(registry: str, tmp_path: Path) -> None:
    await push(registry, "tool", "1", tool("one"))
    await push(registry, "tool", "latest", tool("one"))
    async with image_store(tmp_path / "images") as store:
        with pytest.raises(NodeError) as never:
            await store.take(f"{registry}/tool:1", holder="a", policy="Never")
        assert never.value.reason == "ErrImageNeverPull"
        old = {tag: await store.take(f"{registry}/tool:{tag}", holder="a") for tag in ("1", "latest")}
        await push(registry, "tool", "1", tool("two"))
        await push(registry, "tool", "latest", tool("two"))
        same = await store.take(f"{registry}/tool:1", holder="b")
        assert same.id == old["1"].id
        assert (await store.take(f"{registry}/tool:latest", holder="b", policy="IfNotPresent")).id == same.id
        assert (await store.take(f"{registry}/tool", holder="b", policy="Never")).id == same.id
        assert (await store.take(f"{registry}/tool", holder="c")).id == tool("two").id
        assert (await store.take(f"{registry}/tool:1", holder="c", policy="Always")).id == tool("two").id


async def test_digests_name_one_image(registry: str, tmp_path: Path) -> None:
    old, new = tool("old"), tool("new")
    await push(registry, "tool", "1", old)
    await push(registry, "tool", "1", new)
    async with image_store(tmp_path / "images") as store:
        by_digest = f"{registry}/tool:1@{old.digest}"
        assert (await store.take(by_digest, holder="a")).id == old.id
        assert (await store.take(f"{registry}/tool:1", holder="a")).id == new.id
        # One that came under its tag is found by its digest.
        found = await store.take(f"{registry}/tool@{new.digest}", holder="b", policy="Never")
        assert found.id == new.id
        with pytest.raises(NodeError, match="is not on this machine"):
            await store.take(f"{registry}/other@{new.digest}", holder="b", policy="Never")


async def test_an_index_gives_the_image_of_this_machine(registry: str, tmp_path: Path) -> None:
    mine, other = tool("mine"), make_image([file("x")], config={"architecture": "s390x"})
    index = index_of({"linux/s390x": other, f"linux/{ImageOptions().platform.architecture}": mine})
    for tag, image in (("mine", mine), ("other", other)):
        await push(registry, "tool", tag, image)
    async with aiohttp.ClientSession() as http:
        await put_manifest(http, f"http://{registry}/v2/tool", "all", index, INDEX)
        await put_manifest(http, f"http://{registry}/v2/tool", "foreign", index_of({"linux/s390x": other}), INDEX)
    async with image_store(tmp_path / "images") as store:
        assert (await store.take(f"{registry}/tool:all", holder="a")).id == mine.id
        assert (await store.take(f"{registry}/tool@{digest(index)}", holder="a", policy="Never")).id == mine.id
        for tag in ("foreign", "other"):
            with pytest.raises(NodeError, match="linux/s390x"):
                await store.take(f"{registry}/tool:{tag}", holder="a")


async def test_what_is_not_there(registry: str, tmp_path: Path) -> None:
    await push(registry, "tool", "1", tool())
    async with image_store(tmp_path / "images") as store:
        for name in ("tool:2", "other:1", f"tool@sha256:{'0' * 64}"):
            with pytest.raises(NodeError, match="is the name right") as caught:
                await store.take(f"{registry}/{name}", holder="a")
            assert caught.value.reason == "ErrImagePull"
        assert await store.listed() == ()


async def test_a_login_by_password(closed_registry: str, tmp_path: Path) -> None:
    await push(closed_registry, "tool", "1", tool(), authorization=basic())
    name = f"{closed_registry}/tool:1"
    async with image_store(tmp_path / "images") as store:
        with pytest.raises(NodeError, match="imagePullSecrets"):
            await store.take(name, holder="a")
        with pytest.raises(NodeError, match="does not suffice") as wrong:
            await store.take(name, holder="a", credentials=[Credential(closed_registry, USER, "wrong")])
        assert "wrong" not in wrong.value.message
        with pytest.raises(NodeError, match="no login"):
            await store.take(name, holder="a", credentials=[Credential("other.example", *ALICE)])
        several = [Credential(closed_registry, USER, "wrong"), Credential(closed_registry, *ALICE)]
        assert (await store.take(name, holder="a", credentials=several)).id == tool().id


async def test_large_and_many_layers(registry: str, tmp_path: Path) -> None:
    image = make_image(
        [file("big", os.urandom(3 << 20))],
        *([file(f"f{number}", str(number))] for number in range(4)),
        layer([file("plain", "x")]),
    )
    await push(registry, "big", "1", image)
    async with image_store(tmp_path / "images") as store:
        got = await store.take(f"{registry}/big:1", holder="a")
        assert len(got.rootfs.layers) == 6
        assert (got.rootfs.layers[0] / "big").stat().st_size == 3 << 20
        assert files(got.rootfs.layers[1:]) == {f"f{n}": f"file {n}" for n in range(4)} | {"plain": "file x"}


async def test_a_layer_that_is_there_twice(registry: str, tmp_path: Path) -> None:
    same = layer([file("a", "1")])
    await push(registry, "twice", "1", make_image(same, [removed("a")], same))
    async with image_store(tmp_path / "images") as store:
        got = await store.take(f"{registry}/twice:1", holder="a")
        assert got.rootfs.layers[0] == got.rootfs.layers[2]
        assert files(got.rootfs.layers) == {"a": "file 1"}


async def test_an_image_without_layers(registry: str, tmp_path: Path) -> None:
    await push(registry, "empty", "1", make_image())
    async with image_store(tmp_path / "images") as store:
        assert (await store.take(f"{registry}/empty:1", holder="a")).rootfs.layers == ()


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (ImageLimits(layers=1), "2 layers"),
        (ImageLimits(manifest=100), "100 bytes"),
        (ImageLimits(compressed=100), "more than 100 bytes"),
        (ImageLimits(unpacked=2000), "more than"),
        (ImageLimits(entries=1), "more than 1"),
    ],
    ids=["layers", "manifest", "compressed", "unpacked", "entries"],
)
async def test_limits(tmp_path: Path, limits: ImageLimits, why: str) -> None:
    async with small_registry() as registry, image_store(tmp_path / "images", ImageOptions(limits=limits)) as store:
        await push(registry.address, "tool", "1", tool())
        with pytest.raises(NodeError, match=why):
            await store.take(f"{registry.address}/tool:1", holder="a")
        assert await store.listed() == ()
        await store.prune()
        assert layers(tmp_path / "images") == []
