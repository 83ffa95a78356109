"""Importing files: OCI layouts and what `docker save` writes, and archives that were made to hurt."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest

from sandpool.base.errors import NodeError
from sandpool.node.images.options import ImageLimits, ImageOptions
from support.images.files import (
    encode,
    file,
    index_of,
    layer,
    make_image,
    removed,
    symlink,
    write_docker_archive,
    write_layout,
    write_oci_archive,
)
from support.images.store import files, image_store, layers

ROOT = Path(__file__).parents[3]
IMAGE = make_image([file("a", "1"), file("b", "2")], [removed("a")], run={"Cmd": ["/b"]})
OTHER = make_image([file("other", "1")])


def tar(path: Path, entries: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["oci", "docker"])
async def test_archives(tmp_path: Path, kind: str, packed: bool) -> None:
    write = write_oci_archive if kind == "oci" else write_docker_archive
    path = write(tmp_path / "a.tar", {"team/tool:1": IMAGE, "r.example/other:2": OTHER}, packed=packed)
    async with image_store(tmp_path / "i") as store:
        names = await store.import_archive(path)
        assert [one.reference for one in names] == ["docker.io/team/tool:1", "r.example/other:2"]
        got = await store.take("team/tool:1", holder="a", policy="Never")
        assert (got.id, got.config.cmd) == (IMAGE.id, ("/b",))
        assert files(got.rootfs.layers) == {"b": "file 2"}
        assert (await store.take("r.example/other:2", holder="a")).id == OTHER.id


async def test_a_layout_in_a_folder_and_a_name_of_ones_own(tmp_path: Path) -> None:
    async with image_store(tmp_path / "i") as store:
        await store.import_archive(write_layout(tmp_path / "l", {"": IMAGE}), "mine")
        assert (await store.take("mine", holder="a")).id == IMAGE.id


async def test_what_the_tool_of_this_project_writes(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import oci_archive
    finally:
        sys.path.remove(str(ROOT / "tools"))
    (tmp_path / "rootfs/etc").mkdir(parents=True)
    (tmp_path / "rootfs/etc/name").write_text("box")
    image = oci_archive.Image("registry.example.com/box:1", entrypoint=("/bin/box",))
    oci_archive.pack(tmp_path / "a.tar", image, [tmp_path / "rootfs"])
    async with image_store(tmp_path / "i") as store:
        await store.import_archive(tmp_path / "a.tar")
        got = await store.take("registry.example.com/box:1", holder="a")
        assert files(got.rootfs.layers) == {"etc": "folder", "etc/name": "file box"}
        assert got.config.entrypoint == ("/bin/box",)


async def test_links_between_layers_as_docker_wrote_them(tmp_path: Path) -> None:
    """A layer that is there twice was a link to the first."""
    same = layer([file("a", "1")])
    image = make_image(same, [removed("a")], same)
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for name, content in (
            ("1/layer.tar", same), ("2/layer.tar", layer([removed("a")])), ("c.json", image.config),
            ("manifest.json", json.dumps([{"Config": "c.json", "RepoTags": ["t:1"], "Layers": [f"{n}/layer.tar" for n in (1, 2, 3)]}]).encode()),
        ):  # fmt: skip
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("3/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../1/layer.tar"
        archive.addfile(link)
    async with image_store(tmp_path / "i") as store:
        await store.import_archive(path)
        assert files((await store.take("t:1", holder="a")).rootfs.layers) == {"a": "file 1"}


async def test_of_several_platforms_the_one_of_this_machine(tmp_path: Path) -> None:
    foreign = make_image([file("x")], config={"architecture": "s390x"})
    mine = f"linux/{ImageOptions().platform.architecture}"
    root = write_layout(tmp_path / "l", {"": foreign, "x:1": IMAGE})
    (root / "index.json").write_bytes(index_of({"linux/s390x": foreign, mine: IMAGE}))
    async with image_store(tmp_path / "i") as store:
        await store.import_archive(root, "t:1")
        assert (await store.take("t:1", holder="a")).id == IMAGE.id


async def test_names(tmp_path: Path) -> None:
    two = write_oci_archive(tmp_path / "two.tar", {"a:1": IMAGE, "b:1": OTHER})
    nameless = write_docker_archive(tmp_path / "nameless.tar", {"": IMAGE})
    async with image_store(tmp_path / "i") as store:
        with pytest.raises(NodeError, match="one name cannot stand for all"):
            await store.import_archive(two, "c:1")
        with pytest.raises(NodeError, match="give a name"):
            await store.import_archive(nameless)
        with pytest.raises(NodeError, match="lower case"):
            await store.import_archive(nameless, "Wrong")
        assert await store.listed() == ()


def spoil(root: Path, digest: str, content: bytes) -> Path:
    (root / "blobs" / digest.replace(":", "/")).write_bytes(content)
    return root


async def test_archives_that_are_refused(tmp_path: Path) -> None:
    whole = write_oci_archive(tmp_path / "whole.tar", {"t:1": IMAGE}).read_bytes()
    truncated = tmp_path / "truncated.tar"
    truncated.write_bytes(whole[: len(whole) // 3])
    layout = tmp_path / "l"
    blob = next(iter(IMAGE.blobs))
    secret = tmp_path / "secret"
    secret.write_bytes(IMAGE.config)
    linked = write_layout(tmp_path / "linked", {"t:1": IMAGE})
    (linked / "blobs" / IMAGE.id.replace(":", "/")).unlink()
    (linked / "blobs" / IMAGE.id.replace(":", "/")).symlink_to(secret)
    saved = [{"Config": "../../../../../../" + str(secret), "RepoTags": ["t:1"], "Layers": []}]
    cases = {
        tmp_path / "missing.tar": "No such file",
        truncated: "cut off|missing",
        tar(tmp_path / "empty.tar", {}): "neither index.json",
        tar(tmp_path / "bad.tar", {"index.json": b"{"}): "not JSON",
        tar(tmp_path / "bad2.tar", {"manifest.json": b"{}"}): "docker save",
        tar(tmp_path / "bad3.tar", {"index.json": encode({"schemaVersion": 2, "manifests": []})}): "no image",
        tar(tmp_path / "out.tar", {"manifest.json": encode(saved)}): "is missing",
        spoil(write_layout(layout, {"t:1": IMAGE}), blob, b"x" * len(IMAGE.blobs[blob])): "digest",
        spoil(write_layout(tmp_path / "l2", {"t:1": IMAGE}), blob, b"x"): "its descriptor says",
        spoil(write_layout(tmp_path / "l3", {"t:1": IMAGE}), IMAGE.digest, b"{}"): "its descriptor says",
        linked: "is missing",
        Path("/dev/null"): "neither index.json",
    }
    async with image_store(tmp_path / "i") as store:
        for path, why in cases.items():
            with pytest.raises(NodeError, match=why):
                await store.import_archive(path)
        assert await store.listed() == ()
        await store.prune()
        assert layers(tmp_path / "i") == []


async def test_archives_that_never_end(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.tar.gz"
    bomb.write_bytes(gzip.compress(bytes(64 << 20), 9))
    many = tar(tmp_path / "many.tar", {str(number): b"" for number in range(20_001)})
    async with image_store(tmp_path / "i", ImageOptions(limits=ImageLimits(unpacked=1 << 20))) as store:
        for path, why in ((bomb, "more than"), (many, "more than 20000 entries")):
            with pytest.raises(NodeError, match=why):
                await store.import_archive(path)


async def test_hostile_layers_in_archives(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    hostile = make_image([symlink("a", str(tmp_path)), file("a/outside", os.urandom(8))])
    async with image_store(tmp_path / "i") as store:
        for write in (write_oci_archive, write_docker_archive):
            with pytest.raises(NodeError, match="is refused"):
                await store.import_archive(write(tmp_path / f"{write.__name__}.tar", {"t:1": hostile}))
        assert outside.read_text() == "untouched"
        assert layers(tmp_path / "i") == []
