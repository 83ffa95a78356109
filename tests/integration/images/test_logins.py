"""Tokens, redirects and whom a password is shown."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from aiohttp import web

from sandpool.base.errors import NodeError
from sandpool.node.images.image import Credential
from sandpool.node.images.options import ImageOptions
from support.images.files import file, make_image
from support.images.real_registry import push, real_registry
from support.images.small_registry import PASSWORD, TOKEN, USER, SmallRegistry, small_registry
from support.images.store import image_store
from support.images.token_service import token_service

IMAGE = make_image([file("a", "x" * 2000)])


def alice(address: str) -> list[Credential]:
    return [Credential(address, USER, PASSWORD)]


def put(registry: SmallRegistry) -> str:
    """As if it had been pushed."""
    registry.blobs |= IMAGE.blobs
    registry.manifests["team/tool", "1"] = (IMAGE.media_type, IMAGE.manifest)
    return f"{registry.address}/team/tool:1"


def shown(registry: SmallRegistry) -> set[str]:
    return {one.authorization for one in registry.seen}


async def test_a_token_is_asked_for_once_and_with_the_right_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with small_registry(login="bearer") as registry, image_store(tmp_path / "images") as store:
        name = put(registry)
        await store.take(name, holder="a", credentials=alice(registry.address))
        assert registry.token_requests == 1
        (asked,) = [one for one in registry.seen if one.path == "/token"]
        assert asked.query == {"service": "small", "scope": "repository:team/tool:pull"}
        assert shown(registry) == {"", asked.authorization, f"Bearer {TOKEN}"}
    said = "\n".join(record.getMessage() + str(record.__dict__) for record in caplog.records)
    assert PASSWORD not in said
    assert TOKEN not in said


async def test_a_token_that_ran_out_is_asked_for_again(tmp_path: Path) -> None:
    async with small_registry(login="bearer") as registry, image_store(tmp_path / "images") as store:
        name = put(registry)
        once = iter([401])

        async def before(request: web.Request) -> None:
            if "/blobs/" in request.path and request.headers.get("Authorization"):
                registry.fail.extend([status for status in (next(once, 0),) if status])

        registry.before = before
        assert (await store.take(name, holder="a", credentials=alice(registry.address))).id == IMAGE.id
        assert registry.token_requests == 2


async def test_a_token_service_elsewhere_sees_no_password(tmp_path: Path) -> None:
    async with small_registry("127.0.0.2") as other, small_registry(login="bearer") as registry:
        registry.realm = f"http://{other.address}/token"
        name = put(registry)
        async with image_store(tmp_path / "images") as store:
            with pytest.raises(NodeError, match=r"127\.0\.0\.2 is of another domain"):
                await store.take(name, holder="a", credentials=alice(registry.address))
            assert other.seen == []
            with pytest.raises(NodeError, match="does not accept"):  # without credentials it may be asked
                await store.take(name, holder="a")
            assert shown(other) == {""}
        async with image_store(tmp_path / "images", ImageOptions(token_hosts=("127.0.0.2",))) as store:
            await store.take(name, holder="a", credentials=alice(registry.address))
            assert other.token_requests == 2


@pytest.mark.parametrize(
    "realm", ["http://registry.example/token", "ftp://127.0.0.1/", "/token", "https://u:p@127.0.0.1/"]
)
async def test_token_services_that_are_refused(tmp_path: Path, realm: str) -> None:
    async with small_registry(login="bearer", realm=realm) as registry, image_store(tmp_path / "images") as store:
        with pytest.raises(NodeError, match="is refused"):
            await store.take(put(registry), holder="a", credentials=alice(registry.address))


@pytest.mark.parametrize("login", ["basic", "bearer"])
async def test_redirected_blobs_are_asked_for_without_a_login(tmp_path: Path, login: str) -> None:
    async with small_registry() as blobs, small_registry(login=login) as registry:
        name = put(registry)
        blobs.blobs = dict(IMAGE.blobs)
        registry.redirect = f"http://{blobs.address}"
        async with image_store(tmp_path / "images") as store:
            assert (await store.take(name, holder="a", credentials=alice(registry.address))).id == IMAGE.id
        assert len(blobs.seen) == 2
        assert shown(blobs) == {""}


@pytest.mark.parametrize(
    "target",
    [
        "file:///etc/passwd?",
        "http://registry.example",
        "ftp://127.0.0.1",
        "http://[",
        "javascript:1//",
        "http://u:p@127.0.0.1:1",
    ],
)
async def test_redirects_that_are_refused(tmp_path: Path, target: str) -> None:
    async with small_registry(redirect=target) as registry, image_store(tmp_path / "images") as store:
        with pytest.raises(NodeError, match="redirects to a forbidden location"):
            await store.take(put(registry), holder="a")


async def test_redirects_in_a_circle(tmp_path: Path) -> None:
    async with small_registry() as registry, image_store(tmp_path / "images") as store:
        registry.redirect = f"http://{registry.address}"
        with pytest.raises(NodeError, match="more than 5 times"):
            await store.take(put(registry), holder="a")
        assert len(registry.seen) == 7


async def test_a_login_for_another_registry_is_never_sent(tmp_path: Path) -> None:
    async with small_registry(login="basic") as registry, image_store(tmp_path / "images") as store:
        with pytest.raises(NodeError, match="no login"):
            await store.take(put(registry), holder="a", credentials=alice("registry.example"))
        assert shown(registry) == {""}


async def test_a_login_is_sent_only_when_asked_for(tmp_path: Path) -> None:
    async with small_registry() as registry, image_store(tmp_path / "images") as store:
        await store.take(put(registry), holder="a", credentials=alice(registry.address))
        assert shown(registry) == {""}


async def test_registries_that_the_operator_does_not_allow(tmp_path: Path) -> None:
    async with small_registry() as registry:
        options = ImageOptions(registries=("registry.example", f"{registry.address}/other"))
        async with image_store(tmp_path / "images", options) as store:
            with pytest.raises(NodeError, match="is not allowed"):
                await store.take(put(registry), holder="a")
        assert registry.seen == []
        options = ImageOptions(registries=(f"{registry.address}/team",))
        async with image_store(tmp_path / "images", options) as store:
            await store.take(put(registry), holder="a")


async def test_ipv6(tmp_path: Path) -> None:
    async with small_registry("::1") as registry, image_store(tmp_path / "images") as store:
        assert registry.address.startswith("[::1]:")
        assert (await store.take(put(registry), holder="a")).id == IMAGE.id


async def test_tokens_of_a_real_registry(tmp_path: Path) -> None:
    """docker-registry checks signature, audience, scope and time of the token; only the right one opens it."""
    async with (
        token_service(tmp_path / "token", USER, PASSWORD) as tokens,
        real_registry(tmp_path / "registry", token=tokens.settings) as address,
        image_store(tmp_path / "images") as store,
    ):
        await push(address, "team/tool", "1", IMAGE, authorization=f"Bearer {tokens.issue('team/tool', 'pull,push')}")
        name = f"{address}/team/tool:1"
        with pytest.raises(NodeError, match="does not accept"):
            await store.take(name, holder="a")
        with pytest.raises(NodeError, match="does not accept"):
            await store.take(name, holder="a", credentials=[Credential(address, USER, "wrong")])
        assert (await store.take(name, holder="a", credentials=alice(address))).id == IMAGE.id
