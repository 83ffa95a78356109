"""The disk that images take is shared by tenants: on a small tmpfs in namespaces of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[2]

SCRIPT = """
import asyncio, os, subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
place = Path(sys.argv[1]) / "small"
place.mkdir()
inodes = sys.argv[3] == "inodes"
limits = "size=200m,nr_inodes=8000" if inodes else "size=48m,nr_inodes=0"
subprocess.run(["mount", "-t", "tmpfs", "-o", limits, "tmpfs", str(place)], check=True)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

from sandpool.base.errors import NodeError
from support.images.files import file, make_image
from support.images.store import image_store, layers
from support.images.small_registry import small_registry

def made(name):
    if inodes:
        return make_image([file(f"{name}-{number}", "x") for number in range(700)])
    return make_image([file(name, os.urandom(3 << 20))])

GREEDY = [made(f"g{number}") for number in range(20)]
SMALL = make_image([file("a", "fits")])
MODEST = [made(f"m{number}") for number in range(2)]

async def fill(store, address, hold):
    # as many as it can have; whether its pods go on to use them or not
    for number in range(len(GREEDY)):
        try:
            await store.take(f"{address}/tool:g{number}", holder=f"g{number}", tenant="greedy")
        except NodeError as error:
            return number, error.message
        if not hold:
            store.release(f"g{number}")
    return len(GREEDY), ""

async def main():
    async with small_registry() as registry, image_store(place / "images") as store:
        images = {**{f"g{n}": one for n, one in enumerate(GREEDY)}, **{f"m{n}": one for n, one in enumerate(MODEST)}}
        for tag, image in {**images, "small": SMALL}.items():
            registry.blobs |= image.blobs
            registry.manifests["tool", tag] = (image.media_type, image.manifest)
        await SCENARIOS[sys.argv[4]](store, registry.address)

async def in_use(store, address):
    there, refusal = await fill(store, address, hold=True)
    assert there >= 6, (there, refusal)
    assert "images of namespace greedy have" in refusal, refusal
    assert "may not take the last of it from other namespaces" in refusal, refusal
    assert (await store.take(f"{address}/tool:small", holder="m", tenant="modest")).id == SMALL.id
    assert sum(bool(one.holders) for one in await store.listed()) == there + 1, "what pods use stays"
    for number in range(4):
        store.release(f"g{number}")
    await store.take(f"{address}/tool:g19", holder="g19", tenant="greedy")

async def unused(store, address):
    there, refusal = await fill(store, address, hold=False)
    assert (there, refusal) == (len(GREEDY), ""), "its own go, the longest unused first"
    for number, image in enumerate(MODEST):
        assert (await store.take(f"{address}/tool:m{number}", holder="m", tenant="modest")).id == image.id
    left = [one.names[0].rpartition(":")[2] for one in await store.listed()]
    assert {"m0", "m1", "g19"} <= set(left), left
    for number in range(3):  # what modest has and does not use is not taken by who has more
        store.release("m")
        await store.take(f"{address}/tool:g{number}", holder="g", tenant="greedy")
        store.release("g")
    left = [one.names[0].rpartition(":")[2] for one in await store.listed()]
    assert {"m0", "m1"} <= set(left), left

async def full(store, address):
    # the disk is full of what only one tenant has pulled, and does not use
    await fill(store, address, hold=True)
    store.release("g0")
    store.release("g1")
    store.release("g2")
    assert (await store.take(f"{address}/tool:m0", holder="m", tenant="modest")).id == MODEST[0].id

SCENARIOS = {"in use": in_use, "unused": unused, "full": full}
asyncio.run(main())
print("held")
"""


@pytest.mark.parametrize("scenario", ["in use", "unused", "full"])
@pytest.mark.parametrize("limit", ["bytes", "inodes"])
def test_one_tenants_images_leave_room_for_anothers(tmp_path: Path, limit: str, scenario: str) -> None:
    command = ["unshare", "--user", "--map-root-user", "--mount", "--net", sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        [*command, str(tmp_path), str(SUPPORT), limit, scenario],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if done.returncode and done.stderr.startswith("unshare"):
        pytest.skip(f"this machine allows no such namespace: {done.stderr.strip()}")
    assert done.stdout == "held\n", done.stderr
