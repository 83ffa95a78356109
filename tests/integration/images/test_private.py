"""An image that one tenant pulled with a login is not another's, whether it is asked for by name or by what it consists of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sandpool.base.errors import NodeError
from sandpool.node.images.image import Credential
from sandpool.node.images.store import ImageStore
from support.images.files import MadeImage, digest, file, make_image, write_oci_archive
from support.images.small_registry import FIRST, PASSWORD, USER, SmallRegistry, small_registry
from support.images.store import files, image_store

SECRET = make_image([file("base", "b")], [file("secret", "of team a")])


def put(registry: SmallRegistry, repository: str, image: MadeImage = SECRET) -> str:
    registry.blobs |= image.blobs
    registry.manifests[repository, "1"] = registry.manifests[repository, image.digest] = (
        image.media_type,
        image.manifest,
    )
    return f"{registry.address}/{repository}:1"


def alice(registry: SmallRegistry) -> list[Credential]:
    return [Credential(registry.address, USER, PASSWORD)]


async def refused(store: ImageStore, name: str, policy: str, credentials: Sequence[Credential] = ()) -> str:
    with pytest.raises(NodeError) as caught:
        await store.take(name, holder="b", policy=policy, credentials=credentials)
    return caught.value.reason


@pytest.mark.parametrize("login", ["basic", "bearer"])
async def test_a_private_image_needs_a_proof_of_ones_own(tmp_path: Path, login: str) -> None:
    async with small_registry(login=login) as registry, image_store(tmp_path / "i") as store:
        name = put(registry, "team-a/tool")
        by_digest = f"{registry.address}/team-a/tool@{SECRET.digest}"
        await store.take(name, holder="a", credentials=alice(registry))
        wrong = [Credential(registry.address, USER, "guess")]
        for asked in (name, by_digest):
            for credentials in ([], wrong, [Credential("other.example", USER, PASSWORD)]):
                assert await refused(store, asked, "IfNotPresent", credentials) == "ErrImagePull"
                assert await refused(store, asked, "Never", credentials) == "ErrImageNeverPull"
        registry.seen.clear()
        for asked in (name, by_digest):  # with the same login nobody is asked again
            got = await store.take(asked, holder="c", policy="Never", credentials=[*wrong, *alice(registry)])
            assert got.id == SECRET.id
        assert registry.seen == []


async def test_what_is_said_does_not_tell_whether_it_is_here(tmp_path: Path) -> None:
    async with small_registry(login="basic") as registry, image_store(tmp_path / "i") as store:
        there, missing = put(registry, "team-a/tool"), put(registry, "team-a/else")
        await store.take(there, holder="a", credentials=alice(registry))
        said = []
        for name in (there, missing):
            for policy in ("Never", "IfNotPresent"):
                with pytest.raises(NodeError) as caught:
                    await store.take(name, holder="b", policy=policy)
                said.append(caught.value.message.replace(name, "NAME"))
        assert said[:2] == said[2:]


@pytest.mark.parametrize("ranges", [True, False], ids=["", "without ranges"])
async def test_what_is_here_is_only_asked_about(tmp_path: Path, ranges: bool) -> None:
    """The registry says that this login may have it. And it survives a restart; the password is nowhere on disk."""
    async with small_registry(login="basic", ranges=ranges) as registry:
        name = put(registry, "team-a/tool")
        async with image_store(tmp_path / "i") as store:
            await store.take(name, holder="a", credentials=[Credential(registry.address, USER, PASSWORD)])
        async with image_store(tmp_path / "i") as store:
            registry.seen.clear()
            await store.take(name, holder="b", policy="Never", credentials=alice(registry))
            assert registry.seen == []
            await store.take(name, holder="b", policy="Always", credentials=alice(registry))
            asked = {(one.range, one.path.rpartition("/")[2]) for one in registry.seen}
            blobs = {digest(layer) for layer in SECRET.layers}
            assert {word for range_, word in asked if range_ == FIRST} == blobs
            assert not blobs & {word for range_, word in asked if range_ != FIRST}
    for path in (tmp_path / "i").rglob("*"):
        if path.is_file():
            assert PASSWORD.encode() not in path.read_bytes()


async def test_a_blob_that_the_registry_no_longer_gives_is_no_proof(tmp_path: Path) -> None:
    """The manifest alone does not open what is here: it names a layer that this repository does not have any more."""
    async with small_registry(login="basic") as registry, image_store(tmp_path / "i") as store:
        name = put(registry, "team-a/tool")
        await store.take(name, holder="a", credentials=alice(registry))
        del registry.blobs[digest(SECRET.layers[1])]
        assert await refused(store, name, "Always", alice(registry)) == "ErrImagePull"


async def test_a_repository_that_was_opened_is_for_everybody(tmp_path: Path) -> None:
    async with small_registry(login="basic") as registry, image_store(tmp_path / "i") as store:
        name = put(registry, "team-a/tool")
        await store.take(name, holder="a", credentials=alice(registry))
        registry.login = ""
        await store.take(name, holder="b")
        registry.login = "basic"
        assert (await store.take(name, holder="c", policy="Never")).id == SECRET.id


async def test_what_the_operator_brought_is_for_everybody(tmp_path: Path) -> None:
    async with small_registry(login="basic") as registry, image_store(tmp_path / "i") as store:
        name = put(registry, "team-a/tool")
        await store.pull(name, alice(registry))
        assert (await store.take(name, holder="b", policy="Never")).id == SECRET.id
        other = make_image([file("other")])
        await store.import_archive(write_oci_archive(tmp_path / "a.tar", {"tool:1": other}))
        assert (await store.take("tool:1", holder="b")).id == other.id


async def test_a_manifest_does_not_open_layers(tmp_path: Path) -> None:
    """Team b runs a registry whose manifest names team a's layers. It has not got them, so it does not get them."""
    async with small_registry(login="basic") as registry, small_registry() as own, image_store(tmp_path / "i") as store:
        await store.take(put(registry, "team-a/tool"), holder="a", credentials=alice(registry))
        name = put(own, "team-b/theft")
        for layer in SECRET.layers:
            del own.blobs[digest(layer)]
        assert await refused(store, name, "") == "ErrImagePull"
        # What it says of itself is not believed either: layers of its own that claim to be team a's.
        decoy = make_image([file("x")], [file("y")], config={"rootfs": {"type": "layers", "diff_ids": SECRET.diff_ids}})
        assert await refused(store, put(own, "team-b/decoy", decoy), "") == "ErrImagePull"
        # With the layers themselves there is nothing to hide.
        got = await store.take(put(own, "team-b/theft"), holder="b")
        assert files(got.rootfs.layers) == {"base": "file b", "secret": "file of team a"}


async def test_nor_does_another_repository_of_the_same_registry(tmp_path: Path) -> None:
    async with small_registry(login="basic") as registry, image_store(tmp_path / "i") as store:
        await store.take(put(registry, "team-a/tool"), holder="a", credentials=alice(registry))
        name = put(registry, "team-b/theft")
        registry.seen.clear()
        await store.take(name, holder="b", credentials=alice(registry))  # this one has them, so it delivers them
        assert {digest(layer) for layer in SECRET.layers} <= {path.rpartition("/")[2] for path in registry.paths()}


async def test_an_archive_has_its_layers(tmp_path: Path) -> None:
    async with small_registry(login="basic") as registry, image_store(tmp_path / "i") as store:
        await store.take(put(registry, "team-a/tool"), holder="a", credentials=alice(registry))
        archive = write_oci_archive(tmp_path / "a.tar", {"tool:1": SECRET})
        (record,) = await store.import_archive(archive)
        assert record.id == SECRET.id
        assert (await store.take("tool:1", holder="b", policy="Never")).id == SECRET.id
        assert await refused(store, f"{registry.address}/team-a/tool:1", "Never") == "ErrImageNeverPull"
