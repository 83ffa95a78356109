"""TLS with real certificates: whom the client trusts, and what it shows."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandpool.base.secret import Secret
from sandpool.kube.config import Cluster, Pem, User
from sandpool.kube.errors import ConfigError, Unreachable, Untrusted
from sandpool.kube.http import HttpApi
from sandpool.model.kinds import PODS
from support.clocks.step_clock import StepClock
from support.kube.certificates import Authority
from support.network.scripted_peer import answer, forever, scripted_peer

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}


@dataclass
class Pki:
    folder: Path

    @property
    def ca(self) -> str:
        return (self.folder / "ca.crt").read_text()

    def server(self, stem: str = "server", *, clients: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / f"{stem}.crt", self.folder / f"{stem}.key")
        if clients:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.folder / "ca.crt")
        return context

    def client(self) -> User:
        return User(certificate=Pem(file=self.folder / "client.crt"), key=Pem(file=self.folder / "client.key"))


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    folder = tmp_path_factory.mktemp("pki")
    authority = Authority("test")
    authority.write_ca(folder / "ca")
    authority.write_server(folder / "server", names=[], addresses=["127.0.0.1"])
    authority.write_server(folder / "named", names=["kube.example"], addresses=[])
    authority.write_server(folder / "client", names=["me"], addresses=[])
    other = Authority("other")
    other.write_ca(folder / "other")
    return Pki(folder)


async def test_a_server_of_our_authority(pki: Pki, to: Callable[..., HttpApi]) -> None:
    async with scripted_peer(answer(POD), tls=pki.server()) as peer:
        await to(Cluster(peer.url, ca=pki.ca)).get(PODS, "a", "team")


@pytest.mark.parametrize("ca", ["other.crt", ""], ids=["another authority", "the machine's own trust"])
async def test_a_server_of_another_authority(ca: str, pki: Pki, to: Callable[..., HttpApi], clock: StepClock) -> None:
    trusted = (pki.folder / ca).read_text() if ca else ""
    async with scripted_peer(forever(answer(POD)), tls=pki.server()) as peer:
        with pytest.raises(Untrusted, match=r"TLS handshake failed.*check certificate-authority"):
            await to(Cluster(peer.url, ca=trusted)).get(PODS, "a", "team")
    assert peer.seen == []
    assert clock.sleeps == [], "asking again would not help"


async def test_a_name_that_is_not_in_the_certificate(pki: Pki, to: Callable[..., HttpApi]) -> None:
    async with scripted_peer(answer(POD), tls=pki.server("named")) as peer:
        with pytest.raises(Untrusted):
            await to(Cluster(peer.url, ca=pki.ca)).get(PODS, "a", "team")
        await to(Cluster(peer.url, ca=pki.ca, server_name="kube.example")).get(PODS, "a", "team")


async def test_no_questions_asked(pki: Pki, to: Callable[..., HttpApi]) -> None:
    async with scripted_peer(answer(POD), tls=pki.server("named")) as peer:
        await to(Cluster(peer.url, insecure=True)).get(PODS, "a", "team")


async def test_a_client_certificate(pki: Pki, to: Callable[..., HttpApi]) -> None:
    async with scripted_peer(answer(POD), tls=pki.server(clients=True)) as peer:
        await to(Cluster(peer.url, ca=pki.ca), pki.client()).get(PODS, "a", "team")


async def test_a_client_without_one(pki: Pki, to: Callable[..., HttpApi]) -> None:
    async with scripted_peer(forever(answer(POD)), tls=pki.server(clients=True)) as peer:
        with pytest.raises(Unreachable):
            await to(Cluster(peer.url, ca=pki.ca)).create(PODS, POD, "team")
    assert peer.seen == []


@pytest.mark.parametrize("which", ["key of another", "no PEM"])
async def test_a_certificate_that_does_not_fit_its_key(which: str, pki: Pki, to: Callable[..., HttpApi]) -> None:
    chain = Pem(data=Secret((pki.folder / "client.crt").read_text()))
    wrong = (pki.folder / "server.key").read_text() if which == "key of another" else "hunter2"
    async with scripted_peer(answer(POD), tls=pki.server()) as peer:
        api = to(Cluster(peer.url, ca=pki.ca), User(certificate=chain, key=Pem(data=Secret(wrong))))
        with pytest.raises(ConfigError, match="do not fit together") as caught:
            await api.get(PODS, "a", "team")
    assert wrong not in str(caught.value)


async def test_an_authority_that_is_none(to: Callable[..., HttpApi]) -> None:
    with pytest.raises(ConfigError, match="certificate authority is not a PEM"):
        await to(Cluster("https://127.0.0.1:1", ca="nonsense")).get(PODS, "a", "team")


async def test_plain_http_where_tls_was_expected(pki: Pki, to: Callable[..., HttpApi]) -> None:
    async with scripted_peer(answer(POD)) as peer:
        with pytest.raises(Untrusted):
            await to(Cluster(peer.url.replace("http:", "https:"), ca=pki.ca)).get(PODS, "a", "team")
