"""A pull goes only where the operator allows: whoever chooses the image's name, runs its registry or answers for its name gains nothing."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from integration.images.test_tls import certificate
from sandpool.base.clock import SystemClock
from sandpool.base.errors import NodeError
from sandpool.node.images.http_client import OutOfReach, RegistryConnections
from sandpool.node.images.image import Credential
from sandpool.node.images.options import ImageOptions
from sandpool.node.images.registry_policy import Reach
from sandpool.node.images.store import ImageStore
from support.clocks.impatient_clock import ImpatientClock
from support.images.files import file, make_image
from support.images.small_registry import PASSWORD, USER, SmallRegistry, small_registry
from support.images.store import any_place, image_store
from support.node.inner_service import inner_service

IMAGE = make_image([file("a", "x")])
SECRET = "a word of somebody else"


def put(registry: SmallRegistry) -> str:
    registry.blobs |= IMAGE.blobs
    registry.manifests["tool", "1"] = (IMAGE.media_type, IMAGE.manifest)
    return f"{registry.address}/tool:1"


async def refusal(store: ImageStore, name: str, login: bool = False) -> str:
    credentials = [Credential(name.partition("/")[0], USER, PASSWORD)] if login else []
    with pytest.raises(NodeError) as caught:
        await store.take(name, holder="a", credentials=credentials)
    assert caught.value.reason == "ErrImagePull"
    return caught.value.message


@pytest.mark.parametrize("host", ["127.0.0.1", "127.64.0.9", "::1"])
async def test_this_machine_is_not_asked_unless_it_is_listed(tmp_path: Path, host: str) -> None:
    async with small_registry(host) as registry:
        store = ImageStore(tmp_path / "i", SystemClock())
        await store.open()
        try:
            said = await refusal(store, put(registry))
        finally:
            await store.close()
        assert "is not a registry that may be pulled from" in said
        assert registry.seen == []


@pytest.mark.parametrize("where", ["redirect", "realm"])
@pytest.mark.parametrize("status", [200, 302, 404, 500])
async def test_a_registry_leads_nowhere_else(tmp_path: Path, where: str, status: int) -> None:
    """One that a tenant runs, even if it is listed: what is beside it is not reached, and nothing is told of it."""
    async with inner_service(SECRET, status) as beside, small_registry("127.64.0.9") as registry:
        target = f"http://127.0.0.1:{beside.port}"
        if where == "redirect":
            registry.redirect = target
        else:
            registry.login, registry.realm = "bearer", f"{target}/token"
        for listed in ((registry.address,), ("public", registry.address)):
            async with image_store(tmp_path / "i", ImageOptions(registries=listed)) as store:
                for login in (False, True):
                    said = await refusal(store, put(registry), login)
                    assert SECRET not in said
                    assert f" {status}" not in said
        assert beside.came == 0


async def test_what_answers_after_a_redirect_is_not_told(tmp_path: Path) -> None:
    async with inner_service(SECRET) as beside, small_registry() as registry:
        registry.redirect = f"http://127.0.0.1:{beside.port}"
        options = ImageOptions(registries=(registry.address, f"127.0.0.1:{beside.port}"), attempts=1)
        async with image_store(tmp_path / "i", options) as store:
            said = await refusal(store, put(registry))
        assert beside.came == 1
        assert SECRET not in said
        assert " 418" not in said


async def test_what_is_no_registry_is_not_quoted(tmp_path: Path) -> None:
    async def banner(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SECRET.encode() + b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(banner, "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with image_store(tmp_path / "i", ImageOptions(registries=(address,), attempts=1)) as store:
            said = await refusal(store, f"{address}/tool:1")
    assert "does not speak HTTP" in said
    assert SECRET not in said


async def test_a_login_does_not_come_back_with_a_redirect(tmp_path: Path) -> None:
    """From the registry to another origin and back: whoever is in between does not choose what is asked with the login."""
    async with small_registry("127.0.0.2") as between, small_registry(login="basic") as registry:
        name = put(registry)
        between.blobs = dict(IMAGE.blobs)
        registry.redirect, between.redirect = f"http://{between.address}", f"http://{registry.address}/back"
        options = ImageOptions(registries=(registry.address, between.address))
        async with image_store(tmp_path / "i", options, ImpatientClock()) as store:
            await refusal(store, name, login=True)
        back = [one for one in registry.seen if one.path.startswith("/back")]
        assert back
        assert {one.authorization for one in (*back, *between.seen)} == {""}


@pytest.mark.parametrize("answer", ["127.0.0.1", "nothing"])
async def test_a_public_name_that_means_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """It has a certificate that is trusted, and answers; but it is the address that counts. What is said is the same as for a name that
    does not exist, so that nobody learns what names mean inside."""
    server, client = certificate(tmp_path, "registry.example")
    looked_up: list[str] = []
    original = socket.getaddrinfo

    def lookup(host: Any, *arguments: Any, **more: Any) -> Any:
        if host != "registry.example":
            return original(host, *arguments, **more)
        looked_up.append(host)
        if answer == "nothing":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return original(answer, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    async with small_registry(tls=server) as registry:
        put(registry)
        port = registry.address.rpartition(":")[2]
        name = f"registry.example:{port}/tool:1"
        async with image_store(tmp_path / "i", ImageOptions(tls=client, attempts=1)) as store:
            said = await refusal(store, name)
        assert (
            said == f"image {name}: registry.example:{port} cannot be reached: it has no public address (tried 1 times)"
        )
        assert looked_up
        assert registry.seen == []
        if answer == "127.0.0.1":  # the same one is pulled from where the operator wrote it down with its port
            listed = ImageOptions(tls=client, registries=(f"registry.example:{port}",))
            async with image_store(tmp_path / "i", listed) as store:
                assert (await store.take(name, holder="a")).id == IMAGE.id


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0"])
@pytest.mark.parametrize("reach", [Reach.PUBLIC, Reach.OTHERS])
async def test_no_connection_is_made_out_of_reach(host: str, reach: Reach) -> None:
    """The last wall: whatever was thought of the name, the socket is not made."""
    async with inner_service(SECRET) as beside, RegistryConnections(ImageOptions(), any_place()) as lines:
        lines.meter.expects()
        with pytest.raises(aiohttp.ClientConnectorError) as caught:
            await lines.to(reach, proxied=False).get(f"http://{host}:{beside.port}/")
        assert isinstance(caught.value.os_error, OutOfReach)
        assert beside.came == 0
        async with lines.to(Reach.ANYWHERE, proxied=False).get(f"http://{host}:{beside.port}/") as answer:
            assert answer.status == beside.status


async def test_a_proxy_is_not_asked_for_this_machine(tmp_path: Path) -> None:
    """It would look at home, too."""
    async with inner_service(SECRET) as proxy:
        options = ImageOptions(proxies={"https": f"http://127.0.0.1:{proxy.port}"}, attempts=1)
        async with image_store(tmp_path / "i", options) as store:
            for host in ("127.1", "0x7f000001.0x1", "a.localhost", "10.1.2.3", "169.254.169.254:443"):
                await refusal(store, f"{host}/tool:1")
        assert proxy.came == 0
