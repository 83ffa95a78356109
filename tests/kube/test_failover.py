"""Faults on a real cluster in the middle of a burst: whatever breaks, every claim ends Ready exactly once and nothing leaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
import yaml

from sandpool.install.rules import LEASE
from sandpool.kube.errors import AlreadyExists
from sandpool.loop.lease import Terms
from sandpool.model.kinds import LEASES, PODS
from support.kube import server as kube_server
from support.kube.access import NAMESPACE, signed_token
from support.kube.process import Controller, controller
from support.kube.stage import Stage, User, a_stage, a_user
from support.kube.witness import Witness
from support.network.loop_proxy import Proxy, a_proxy

pytestmark = [pytest.mark.kube, pytest.mark.alone, pytest.mark.timeout(600)]

BRIEF = "--leader-election-lease-duration=6s"
POOL, CLAIMS = 60, 90  # more claims than members: some wait, or start cold


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if lacking := kube_server.lacking():
        pytest.skip(lacking)
    with a_stage(tmp_path_factory.mktemp("stage"), "failover") as stage:
        yield stage


@pytest.fixture
def racers(stage: Stage) -> Iterator[list[Controller]]:
    with two_of_them(stage, BRIEF) as made:
        yield made


@pytest.fixture
def heirs(stage: Stage) -> Iterator[list[Controller]]:
    with two_of_them(stage) as made:
        yield made


@contextmanager
def two_of_them(stage: Stage, *flags: str) -> Iterator[list[Controller]]:
    with ExitStack() as stack:
        kubeconfig = stage.identity.kubeconfig
        yield [
            stack.enter_context(controller(stage.folder, kubeconfig, *flags, name=f"racer-{number}"))
            for number in range(2)
        ]


async def leader(user: User, racers: list[Controller]) -> Controller:
    found: list[Controller] = []

    async def one_leads() -> bool:
        found[:] = [one for one in racers if one.code is None and await asyncio.to_thread(one.leads)]
        return len(found) == 1

    await user.until(one_leads, "one of them leads")
    return found[0]


async def insisting(work: Callable[[], Awaitable[None]], user: User) -> None:
    """A user whose request got no answer tries again."""

    async def done() -> bool:
        try:
            await work()
        except AlreadyExists:
            return True
        return True

    await user.until(done, "the request is answered")


@asynccontextmanager
async def a_burst(stage: Stage, name: str, breaks: Callable[[User], Awaitable[object]]) -> AsyncIterator[User]:
    """Claims arrive; when some are served, something breaks. Afterwards all are Ready, once, and nothing is left over."""
    async with a_user(stage, name) as user:
        await user.template()
        await user.pool(POOL)
        await user.filled(POOL)
        witness = Witness(user.api, name)
        async with witness.watching():
            names = [f"c{index}" for index in range(CLAIMS)]
            async with asyncio.TaskGroup() as group:
                for each in names:
                    group.create_task(insisting(partial(user.claim, each), user))
                await first_bound(witness)
                assert len(witness.published) < CLAIMS, "the burst was over before anything broke"
                await breaks(user)
            bound = await user.served(*names, seconds=180)
            assert len(set(bound.values())) == CLAIMS
            await user.filled(POOL, seconds=180)
            await user.until(lambda: _exact(user), "one pod for each claim and each member")
            witness.content()
            yield user


async def first_bound(witness: Witness) -> None:
    """Returns within the very step in which the first binding is seen."""
    seen = asyncio.Event()
    witness.claims.subscribe(lambda old, new: seen.set() if witness.published else None)
    async with asyncio.timeout(60):
        await seen.wait()


async def _exact(user: User) -> bool:
    return len(await user.sandboxes()) == len(await user.all(PODS)) == CLAIMS + POOL


async def test_the_leader_is_killed(stage: Stage, heirs: list[Controller]) -> None:
    """With the flags that everybody has. How soon the next one leads is computed in tests/unit/loop/test_lease.py."""
    async with a_user(stage, "nobody") as nobody:
        first = await leader(nobody, heirs)

    async def kill(user: User) -> None:
        first.kill()
        lease = await user.api.get(LEASES, LEASE, NAMESPACE)
        assert lease.spec.renew_time is not None
        renewed.append(lease.spec.renew_time)

    renewed: list[datetime] = []
    async with a_burst(stage, "killed", kill) as user:
        left = await leader(user, heirs)
        lease = await user.api.get(LEASES, LEASE, NAMESPACE)
        assert lease.spec.acquire_time is not None
        silent = (lease.spec.acquire_time - renewed[0]).total_seconds()
        assert silent > Terms().renew, "not while the first might still act"
        assert lease.spec.lease_duration_seconds == Terms().duration
        assert await asyncio.to_thread(left.page, "/readyz") == (200, "ok\n")
        assert "traceback" not in left.log.read_text(), left.tail(40)


async def test_the_leader_stops_in_order(stage: Stage, racers: list[Controller]) -> None:
    async def stop(user: User) -> None:
        first = await leader(user, racers)
        assert await asyncio.to_thread(first.stop) == 0, first.tail()
        assert first.lines("lease released")
        lease = await user.api.get(LEASES, LEASE, NAMESPACE)
        assert lease.spec.holder_identity is None or not await asyncio.to_thread(first.leads)

    async with a_burst(stage, "stopped", stop):
        pass


async def test_the_api_server_and_etcd_start_again(stage: Stage, racers: list[Controller]) -> None:
    async def restart(user: User) -> None:
        await asyncio.to_thread(stage.server.restart, "kube-apiserver")
        await asyncio.to_thread(stage.server.restart, "etcd")

    async with keep_running(stage, racers), a_burst(stage, "restarted", restart):
        pass


@asynccontextmanager
async def keep_running(stage: Stage, racers: list[Controller]) -> AsyncIterator[None]:
    """What a Deployment does: a process that ended, having lost its lease while nobody answered, is started again."""

    async def nurse() -> None:
        while True:
            for number, one in enumerate(racers):
                if one.code is not None:
                    assert one.code == 1, one.tail()
                    racers[number] = Controller(one.log, stage.identity.kubeconfig, BRIEF)
            await asyncio.sleep(0.5)

    task = asyncio.create_task(nurse())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for one in racers:
            await asyncio.to_thread(one.stop)


async def test_connections_are_cut_again_and_again(stage: Stage, tmp_path: Path) -> None:
    async with a_proxy(stage.server.url) as proxy:
        kubeconfig = through(proxy, stage, tmp_path)
        made = await asyncio.to_thread(Controller, tmp_path / "cut.log", kubeconfig)
        try:
            await asyncio.to_thread(made.wait_ready, leading=True)

            async def cut(user: User) -> None:
                for _ in range(5):
                    await proxy.drop()
                    await asyncio.sleep(0.3)

            async with a_burst(stage, "cut", cut):
                assert made.code is None, made.tail()
        finally:
            await asyncio.to_thread(made.stop)


def through(proxy: Proxy, stage: Stage, folder: Path) -> Path:
    config = yaml.safe_load(stage.identity.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = proxy.url
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def test_the_token_expires(stage: Stage, tmp_path: Path) -> None:
    """As long as somebody puts a new one into its file, nobody notices. Without, the process ends and says why."""
    stage.identity.show(signed_token(stage.server, NAMESPACE, 12))
    made = await asyncio.to_thread(Controller, tmp_path / "token.log", stage.identity.kubeconfig, BRIEF)
    try:
        await asyncio.to_thread(made.wait_ready, leading=True)

        async def renew(user: User) -> None:
            stage.identity.show(signed_token(stage.server, NAMESPACE, 40))
            await asyncio.sleep(20)  # the first token is over, also for a server that remembers it for a while

        async with a_burst(stage, "token", renew):
            assert made.code is None, made.tail()
            assert await asyncio.to_thread(made.wait, 120) == 1
        assert "sandpool: lease" in made.tail(), made.tail()
        assert "Unauthorized" in made.tail(), made.tail()
    finally:
        await asyncio.to_thread(made.stop)
