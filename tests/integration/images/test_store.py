"""Several who want an image, who holds what, and what a crash or a cancellation leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from sandpool.base.clock import SystemClock
from sandpool.base.errors import NodeError
from sandpool.node.images.garbage_collection import ImageHeld, ImageUnknown, charges
from sandpool.node.images.image import Images, RootFs
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.prune import PruneRules
from sandpool.node.images.store import ImageStore
from support.clocks.manual_clock import ManualClock
from support.images.files import MadeImage, digest, file, folder, layer, make_image, opaque, write_oci_archive
from support.images.small_registry import SmallRegistry, small_registry
from support.images.store import files, image_store, layers, leftovers

BASE = layer([file("base", "x" * 9000)])
EVERYTHING = PruneRules(0.0, 0)


def image(word: str) -> MadeImage:
    return make_image(BASE, [file(word, word)])


def put(registry: SmallRegistry, word: str = "one", tag: str = "") -> str:
    made = image(word)
    registry.blobs |= made.blobs
    registry.manifests["tool", tag or word] = (made.media_type, made.manifest)
    return f"{registry.address}/tool:{tag or word}"


@pytest.fixture
async def registry() -> AsyncIterator[SmallRegistry]:
    async with small_registry() as small:
        yield small


class Gate:
    """Holds requests for blobs back until it is opened; for one of them, or for all."""

    def __init__(self, registry: SmallRegistry, blob: str = "") -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        self.path = f"/blobs/{blob}"
        registry.before = self.wait

    async def wait(self, request: web.Request) -> None:
        if self.path in request.path:
            self.reached.set()
            await self.opened.wait()


async def test_it_is_what_backends_ask_for(tmp_path: Path) -> None:
    async with image_store(tmp_path / "i") as store:
        images: Images = store
        assert (await images.take("host", holder="a", policy="Always")).rootfs == RootFs(host=True)
        images.release("a")
        images.release("nobody")


async def test_several_who_want_the_same_image_share_one_pull(registry: SmallRegistry, tmp_path: Path) -> None:
    name, gate = put(registry), Gate(registry)
    async with image_store(tmp_path / "i") as store, asyncio.TaskGroup() as group:
        said: list[list[str]] = [[] for _ in range(20)]
        takes = [group.create_task(store.take(name, holder=f"p{n}", progress=said[n].append)) for n in range(20)]
        await gate.reached.wait()
        gate.opened.set()
        taken = await asyncio.gather(*takes)
        assert len({one.rootfs for one in taken}) == 1
        assert len(registry.seen) == 4
        assert all(said)
        (listed,) = await store.listed()
        assert len(listed.holders) == 20


async def test_one_who_leaves_does_not_end_the_pull(registry: SmallRegistry, tmp_path: Path) -> None:
    name, gate = put(registry), Gate(registry)
    async with image_store(tmp_path / "i") as store:
        leaves, stays = (asyncio.create_task(store.take(name, holder=holder)) for holder in "ab")
        await gate.reached.wait()
        leaves.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaves
        gate.opened.set()
        assert (await stays).id == image("one").id
        assert (await store.listed())[0].holders == ("b",)


async def test_the_last_who_leaves_ends_it_and_nothing_is_left(registry: SmallRegistry, tmp_path: Path) -> None:
    name, gate = put(registry), Gate(registry)
    async with image_store(tmp_path / "i") as store:
        takes = [asyncio.create_task(store.take(name, holder=holder)) for holder in "ab"]
        await gate.reached.wait()
        for take in takes:
            take.cancel()
        await asyncio.gather(*takes, return_exceptions=True)
        assert all(take.cancelled() for take in takes)
        assert leftovers(tmp_path / "i") == []
        gate.opened.set()
        assert (await store.take(name, holder="c")).id == image("one").id


async def test_cancelled_while_it_unpacks(registry: SmallRegistry, tmp_path: Path) -> None:
    """The worker is killed and its folder goes, however far it was."""
    made = make_image([file(f"d/{number}", "x") for number in range(4000)])
    registry.blobs |= made.blobs
    registry.manifests["many", "1"] = (made.media_type, made.manifest)
    async with image_store(tmp_path / "i") as store:
        take = asyncio.create_task(store.take(f"{registry.address}/many:1", holder="a"))
        while not any((tmp_path / "i").glob("processes/*/work/*/1/root/d/*")):
            await asyncio.sleep(0)  # nothing else tells how far another process is
        take.cancel()
        with pytest.raises(asyncio.CancelledError):
            await take
        assert leftovers(tmp_path / "i") == []
        assert layers(tmp_path / "i") == []


async def test_closing_ends_pulls(registry: SmallRegistry, tmp_path: Path) -> None:
    name, gate = put(registry), Gate(registry)
    store = ImageStore(tmp_path / "i", SystemClock(), ImageOptions(registries=(registry.address,)))
    await store.open()
    take = asyncio.create_task(store.take(name, holder="a"))
    await gate.reached.wait()
    await store.close()
    with pytest.raises(NodeError, match="cancelled"):
        await take
    gate.opened.set()
    assert list((tmp_path / "i/processes").iterdir()) == []


async def test_what_is_held_stays(registry: SmallRegistry, tmp_path: Path) -> None:
    async with image_store(tmp_path / "i") as store:
        one = await store.take(put(registry, "one"), holder="pod-1")
        await store.take(put(registry, "one"), holder="pod-2")
        await store.take(put(registry, "two"), holder="pod-2")
        with pytest.raises(ImageHeld, match="pod-1, pod-2"):
            await store.remove(put(registry, "one"))
        store.release("pod-2")
        removed = await store.prune(EVERYTHING)
        assert removed.images == (f"{registry.address}/tool:two",)
        assert removed.bytes == 4096
        assert files(one.rootfs.layers) == {"base": f"file {'x' * 9000}", "one": "file one"}
        store.release("pod-1")
        assert (await store.prune(EVERYTHING)).bytes == 3 * 4096 + 4096
        assert layers(tmp_path / "i") == []


async def test_an_image_that_lost_its_name_goes_with_its_last_holder(registry: SmallRegistry, tmp_path: Path) -> None:
    async with image_store(tmp_path / "i") as store:
        name = put(registry, "old", "tag")
        old = await store.take(name, holder="old", policy="Always")
        put(registry, "new", "tag")
        new = await store.take(name, holder="new", policy="Always")
        assert (old.id, new.id) == (image("old").id, image("new").id)
        assert files(old.rootfs.layers)["old"] == "file old"
        assert [one.names for one in await store.listed()] == [(), (name,)]
        store.release("old")
        assert (await store.prune()).images == (old.id,)


async def test_age_and_size(registry: SmallRegistry, tmp_path: Path) -> None:
    clock = ManualClock()
    options = ImageOptions(unused_for=1000.0, max_bytes=30_000)
    async with image_store(tmp_path / "i", options, clock) as store:
        for word in ("one", "two", "three", "four"):
            await store.take(put(registry, word), holder=word)
            clock.advance(100)
            store.release(word)
        assert len(await store.listed()) == 4  # 12 kB of base, and 4 kB for each
        await store.take(put(registry, "one"), holder="again")
        await store.take(put(registry, "five"), holder="x")
        assert len(await store.listed()) == 4
        assert f"{registry.address}/tool:two" not in {name for one in await store.listed() for name in one.names}
        clock.advance(950)
        store.release("again")
        store.release("x")
        await store.prune()
        assert {one.used_at for one in await store.listed()} == {clock.now().timestamp() - 950}
        clock.advance(1000)
        await store.prune()
        assert layers(tmp_path / "i") == []


async def test_a_second_process_sees_the_holders_of_the_first(registry: SmallRegistry, tmp_path: Path) -> None:
    async with image_store(tmp_path / "i") as running:
        name = put(registry)
        await running.take(name, holder="pod")
        async with image_store(tmp_path / "i") as command:
            assert (await command.listed())[0].holders == ("pod",)
            assert (await command.prune(EVERYTHING)).images == ()
            with pytest.raises(ImageHeld):
                await command.remove(name)
            running.release("pod")
            assert (await command.remove(name)).images == (name,)
        with pytest.raises(ImageUnknown):
            await running.remove(name)
        assert (await running.take(name, holder="pod")).id == image("one").id


async def test_layers_that_a_pull_counts_on_are_not_pruned_by_another(registry: SmallRegistry, tmp_path: Path) -> None:
    async with image_store(tmp_path / "i") as running, image_store(tmp_path / "i") as command:
        await running.take(put(registry, "one"), holder="pod")
        gate = Gate(registry, digest(image("two").layers[1]))
        take = asyncio.create_task(running.take(put(registry, "two"), holder="next"))
        await gate.reached.wait()  # the layer that both have is here, and it was found
        running.release("pod")
        removed = await command.prune(EVERYTHING)
        assert removed.images == (put(registry, "one"),)
        assert removed.bytes == 4096
        gate.opened.set()
        assert files((await take).rootfs.layers) == {"base": f"file {'x' * 9000}", "two": "file two"}


CRASH = """
import asyncio, sys
from pathlib import Path
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.store import ImageStore
from sandpool.base.clock import SystemClock

async def main():
    store = ImageStore(Path(sys.argv[1]), SystemClock(), ImageOptions(registries=("127.0.0.1:*",)))
    await store.open()
    await store.take(sys.argv[2], holder="pod")
    print("taken", flush=True)
    await store.take(sys.argv[3], holder="pod")

asyncio.run(main())
"""


async def test_what_a_killed_process_leaves_goes_with_the_next(registry: SmallRegistry, tmp_path: Path) -> None:
    place = tmp_path / "i"
    whole = put(registry, "one")
    gate = Gate(registry)
    gate.opened.set()
    big = make_image([file("big", os.urandom(500_000))], [file("x")])
    registry.blobs |= big.blobs
    registry.manifests["big", "1"] = (big.media_type, big.manifest)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CRASH, str(place), whole, f"{registry.address}/big:1", stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"taken\n"
        gate.reached.clear()
        gate.opened.clear()
        await gate.reached.wait()
    finally:
        process.send_signal(signal.SIGKILL)
        await process.communicate()
    gate.opened.set()
    assert len(list((place / "processes").iterdir())) == 1
    async with image_store(place) as store:
        assert len(list((place / "processes").iterdir())) == 1
        (listed,) = await store.listed()
        assert listed.names == (whole,)
        assert listed.holders == ()
        assert (await store.take(whole, holder="a", policy="Never")).id == image("one").id


async def test_records_that_were_damaged_are_not_there(registry: SmallRegistry, tmp_path: Path) -> None:
    async with image_store(tmp_path / "i") as store:
        name = put(registry)
        await store.take(name, holder="a")
        for path in (*(tmp_path / "i/images").iterdir(), *(tmp_path / "i/names").iterdir()):
            path.write_bytes(b"{")
        assert await store.listed() == ()
        assert (await store.take(name, holder="a")).id == image("one").id


async def test_a_layer_that_somebody_removed_is_fetched_again(registry: SmallRegistry, tmp_path: Path) -> None:
    async with image_store(tmp_path / "i") as store:
        got = await store.take(put(registry), holder="a")
        gone = got.rootfs.layers[1].parent
        for path in sorted(gone.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        gone.rmdir()
        assert files((await store.take(put(registry), holder="a")).rootfs.layers)["one"] == "file one"


async def test_folders(tmp_path: Path) -> None:
    allowed = tmp_path / "roots"
    (allowed / "debian").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (allowed / "file").write_text("")
    (allowed / "out").symlink_to(tmp_path / "secret")
    (allowed / "in").symlink_to(allowed / "debian")
    async with image_store(tmp_path / "i", ImageOptions(allowed_directories=(allowed,))) as store:
        for name in ("debian", "in", "debian/../debian/."):
            got = await store.take(f"dir:{allowed}/{name}", holder="a", policy="Always")
            assert (got.rootfs, got.id) == (RootFs(layers=((allowed / "debian").resolve(),)), "")
        for name in ("../secret", "out", "../roots2", "in/../../secret"):
            with pytest.raises(NodeError, match="not allowed"):
                await store.take(f"dir:{allowed}/{name}", holder="a")
        for name in ("file", "missing"):
            with pytest.raises(NodeError, match="is not a directory"):
                await store.take(f"dir:{allowed}/{name}", holder="a")
        with pytest.raises(NodeError, match="absolute"):
            await store.take("dir:roots", holder="a")
    async with image_store(tmp_path / "i") as store:
        with pytest.raises(NodeError, match="no directory may be used"):
            await store.take(f"dir:{allowed}/debian", holder="a")


async def test_imported_images_are_never_asked_of_a_registry(registry: SmallRegistry, tmp_path: Path) -> None:
    name = put(registry, "theirs", "latest")
    archive = write_oci_archive(tmp_path / "a.tar", {name: image("mine")})
    async with image_store(tmp_path / "i") as store:
        await store.import_archive(archive)
        assert (await store.take(name, holder="a", policy="Always")).id == image("mine").id
        assert registry.seen == []
        store.release("a")
        assert (await store.prune(EVERYTHING)).images == ()
        assert await store.pull(name) == image("theirs").id
        assert (await store.take(name, holder="a", policy="Always")).id == image("theirs").id


async def test_the_folder_is_private(tmp_path: Path) -> None:
    (tmp_path / "i").mkdir(mode=0o755)
    async with image_store(tmp_path / "i"):
        assert (tmp_path / "i").stat().st_mode & 0o077 == 0


async def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "i").write_text("")
    with pytest.raises(NodeError, match="cannot be used"):
        await ImageStore(tmp_path / "i", SystemClock()).open()


async def test_layers_whose_modes_forbid_everything_can_be_removed(registry: SmallRegistry, tmp_path: Path) -> None:
    made = make_image([folder("d", 0), file("d/e/f", "x", mode=0), folder("d/e", 0o500)])
    registry.blobs |= made.blobs
    registry.manifests["closed", "1"] = (made.media_type, made.manifest)
    async with image_store(tmp_path / "i") as store:
        await store.take(f"{registry.address}/closed:1", holder="a")
        store.release("a")
        await store.prune(EVERYTHING)
        assert layers(tmp_path / "i") == []


async def test_folders_that_a_layer_does_not_describe(registry: SmallRegistry, tmp_path: Path) -> None:
    """They look as the layers below say; an image that needs nothing of that has no layer more."""
    made = make_image([folder("./"), folder("tmp", 0o1777)], [folder("./"), file("tmp/a", "1")])
    registry.blobs |= made.blobs
    registry.manifests["tmp", "1"] = (made.media_type, made.manifest)
    async with image_store(tmp_path / "i") as store:
        got = await store.take(f"{registry.address}/tmp:1", holder="a")
        assert len(got.rootfs.layers) == 3
        assert (got.rootfs.layers[-1] / "tmp").stat().st_mode & 0o7777 == 0o1777
        assert files(got.rootfs.layers) == {"tmp": "folder", "tmp/a": "file 1"}
        assert await store.take(f"{registry.address}/tmp:1", holder="b") == got
        store.release("a")
        store.release("b")
        await store.prune(EVERYTHING)
        assert layers(tmp_path / "i") == []


async def test_a_layer_that_hides_all_below(registry: SmallRegistry, tmp_path: Path) -> None:
    """Overlayfs does not know that of a root, so those below are left out of the stack."""
    made = make_image([file("old", "1")], [file("new", "2"), opaque("")], [file("top", "3")])
    registry.blobs |= made.blobs
    registry.manifests["root", "1"] = (made.media_type, made.manifest)
    async with image_store(tmp_path / "i") as store:
        got = await store.take(f"{registry.address}/root:1", holder="a")
        assert [sorted(os.listdir(layer)) for layer in got.rootfs.layers] == [["new"], ["top"]]
        registry.seen.clear()
        assert await store.take(f"{registry.address}/root:1", holder="a", policy="Always") == got
        assert len(registry.seen) == 2


async def test_whoever_uses_an_image_shares_what_it_takes(registry: SmallRegistry, tmp_path: Path) -> None:
    name = put(registry)
    async with image_store(tmp_path / "i") as store:
        await store.take(name, holder="a", tenant="a")
        whole = charges(store.directory, 0)
        assert set(whole) == {"a"}
        for _ in range(2):
            await store.take(name, holder="b", tenant="b")
        assert charges(store.directory, 0) == {"a": whole["a"] // 2, "b": whole["a"] // 2}
        await store.take(name, holder="a", tenant="a", policy="Always")
    async with image_store(tmp_path / "i") as again:
        assert charges(again.directory, 0) == {"a": whole["a"] // 2, "b": whole["a"] // 2}
        await again.pull(name)
        await again.take(name, holder="c", tenant="c")
        assert charges(again.directory, 0) == {"": whole["a"]}
        assert not again.space.pulling
