"""Attempts through pulls: it is the machine that asks a registry, and a tenant says which one."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import msgspec

from sandpool.base.clock import SystemClock
from sandpool.base.errors import NodeError
from sandpool.model.metadata import Uid
from sandpool.node.backend import PodStatus, Waiting
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.store import ImageStore
from support.escape.world import PATIENCE, World
from support.node.inner_service import InnerService, inner_service

PORT = 5000
# A registry of the tenant's own: it sends whoever asks to where its argument says.
REGISTRY = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(401 if "realm" in self.path else 307)
        self.send_header("Location", sys.argv[1])
        self.send_header("WWW-Authenticate", f'Bearer realm="{sys.argv[1]}",service="x"')
        self.send_header("Content-Length", "0")
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"""


async def pulls_into_the_machine(world: World) -> None:
    """By the name of the image, by a redirect and by a token service: nobody is asked, and nothing is told."""
    async with inner_service(world.token) as inside:
        target = f"http://127.0.0.1:{inside.port}/v2/x/blobs/y"
        async with world.pod(world.workload(("python3", "-c", REGISTRY, target, str(PORT)), port=PORT)) as uid:
            seen = world.backend.pod_status(uid)
            assert seen is not None
            await _listens(world, uid)
            own = f"{seen.address}:{PORT}"
            for image in (
                f"{own}/redirect:1", f"{own}/realm:1", f"127.0.0.1:{inside.port}/x:1", f"localhost:{inside.port}/x:1",
                f"{world.address}:{world.port}/x:1",
            ):  # fmt: skip
                said = await _refusal(world, image)
                assert world.token not in said, said
                assert world.neighbour_token not in said, said
                assert " 418" not in said, said
            assert inside.came == 0
            await _proof(world, own, inside)


async def _listens(world: World, uid: Uid) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(NodeError, OSError):
                (await world.backend.dial(uid, PORT)).close()
                return
            await asyncio.sleep(0.01)


async def _refusal(world: World, image: str) -> str:
    work = world.workload(("true",))
    spec = msgspec.structs.replace(work.spec.containers[0], image=image)
    work = replace(work, spec=msgspec.structs.replace(work.spec, containers=(spec,)))
    await world.backend.start_pod(work)
    try:
        seen = await world.until(work.uid, _told)
        assert seen is not None
        state = seen.containers[0].state
        assert isinstance(state, Waiting)
        return state.message
    finally:
        await world.gone(work.uid)


def _told(seen: PodStatus | None) -> bool:
    state = seen.containers[0].state if seen is not None else None
    return isinstance(state, Waiting) and state.reason in ("ErrImagePull", "ImagePullBackOff")


async def _proof(world: World, own: str, inside: InnerService) -> None:
    """With both of them listed, the same registry leads there."""
    options = ImageOptions(registries=(own, f"127.0.0.1:{inside.port}"), attempts=1)
    images = ImageStore(world.folder / "proof-of-pulls", SystemClock(), options)
    await images.open()
    try:
        for name in ("redirect", "realm"):
            with contextlib.suppress(NodeError):
                await images.take(f"{own}/{name}:1", holder="proof")
        assert inside.came == 2, inside.came
    finally:
        await images.close()


SCENARIOS = (pulls_into_the_machine,)
