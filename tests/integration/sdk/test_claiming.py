"""Claims through the SDK on a real local cluster: got, kept, given back, and never left behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sandpool import (
    AsyncConnection,
    AsyncSandbox,
    ClaimDeleted,
    ClaimFailed,
    ClaimTimeout,
    Config,
    Connection,
    Denied,
    NotConfigured,
    PoolNotFound,
    Released,
    Sandbox,
    SandboxGone,
    SandboxNotFound,
    State,
)
from sandpool.kube.errors import NotFound, Refused
from sandpool.model.kinds import POOLS
from sandpool.sdk.api_paths import claims, sandboxes
from sandpool.sdk.config import resolve_here
from support.network.loop_proxy import a_proxy
from support.product.cluster import Cluster, running_cluster
from support.product.cluster_watch import became

EXTENSIONS = "extensions.agents.x-k8s.io/v1beta1"


def template(name: str, **annotations: str) -> dict[str, Any]:
    pod = {
        "metadata": {"annotations": {key.replace("_", "-"): value for key, value in annotations.items()}},
        "spec": {"containers": [{"name": "main", "image": "python"}]},
    }
    return {
        "apiVersion": EXTENSIONS, "kind": "SandboxTemplate", "metadata": {"name": name}, "spec": {"podTemplate": pod},
    }  # fmt: skip


def pool(name: str, replicas: int, of: str | None = None) -> dict[str, Any]:
    spec = {"replicas": replicas, "sandboxTemplateRef": {"name": of or name}}
    return {"apiVersion": EXTENSIONS, "kind": "SandboxWarmPool", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster") / "data") as found:
        base = f"/apis/{EXTENSIONS}/namespaces/default"
        slow = template("slow")
        slow["spec"]["podTemplate"]["metadata"]["annotations"] = {"hollow.sandpool.dev/never-ready": "true"}
        for body in (template("quick"), slow):
            found.request("POST", f"{base}/sandboxtemplates", body)
        for body in (pool("quick", 3), pool("slow", 0), pool("orphan", 0, "absent")):
            found.request("POST", f"{base}/sandboxwarmpools", body)
        yield found


@pytest.fixture
def config(cluster: Cluster) -> Config:
    return Config(data_dir=cluster.data_dir)


@pytest.fixture
def names(cluster: Cluster) -> Iterator[Any]:
    """The claims there are; a test that leaves one behind has failed."""

    def found() -> set[str]:
        return {
            name for name, one in cluster.claims().items() if "deletionTimestamp" not in one["metadata"]
        }  # fmt: skip

    before = found()
    yield found
    assert found() == before


def test_claimed_in_a_with_statement_and_given_back(config: Config, names: Any) -> None:
    before = names()
    with Connection(config) as connection, Sandbox.claim("quick", labels={"team": "a"}, connection=connection) as box:
        assert names() - before == {box.name}
        assert box.pool == "quick"
        assert box.namespace == "default"
        assert box.sandbox.startswith("quick-")
        info = box.info()
        assert (info.state, info.uid) == (State.READY, box.uid)
        assert info.labels == {
            "team": "a",
            "agents.x-k8s.io/created-by": "sandpool-sdk",
            "sandpool.dev/client": connection.mark,
        }
    with pytest.raises(Released, match=box.name):
        box.info()
    with pytest.raises(Released, match="claim or attach again"):
        box.run("true")


async def test_the_same_with_await(config: Config, names: Any) -> None:
    async with AsyncSandbox.claim("quick", config=config) as box:
        assert (await box.info()).state is State.READY
    box = await AsyncSandbox.claim("quick", config=config)
    assert box.name in names()
    await box.release()
    await box.release()


def test_given_back_after_an_error(config: Config, names: Any) -> None:
    with pytest.raises(ZeroDivisionError), Sandbox.claim("quick", config=config):
        _ = 1 / 0


def test_attaching_does_not_give_back(config: Config, names: Any) -> None:
    with Sandbox.claim("quick", name="mine", config=config) as box:
        with Sandbox.attach("mine", config=config) as again:
            assert (again.uid, again.sandbox) == (box.uid, box.sandbox)
        assert box.info().state is State.READY
        with pytest.raises(ClaimFailed, match=r"Sandbox\.attach\('mine'\)") as caught:
            Sandbox.claim("quick", name="mine", config=config)
        assert caught.value.reason == "AlreadyExists"
        assert "mine" in names()  # it was not ours to delete


def test_attaching_to_nothing(config: Config) -> None:
    with pytest.raises(SandboxNotFound, match="sandpool ls"):
        Sandbox.attach("absent", config=config)


def test_a_handle_that_is_closed_leaves_its_sandbox(config: Config, names: Any) -> None:
    box = Sandbox.claim("quick", config=config)
    box.close()
    with Sandbox.attach(box.name, config=config) as again:
        assert again.uid == box.uid
        again.release()


def test_listing(config: Config, names: Any) -> None:
    with Connection(config) as connection:
        first = Sandbox.claim("quick", labels={"job": "x"}, connection=connection)
        second = Sandbox.claim("quick", labels={"job": "y"}, ttl=600, connection=connection)
        found = Sandbox.list(labels={"job": "y"}, connection=connection)
        assert [(one.name, one.state, one.sandbox) for one in found] == [(second.name, State.READY, second.sandbox)]
        assert found[0].expires is not None
        assert {one.name for one in Sandbox.list(pool="quick", labels="job in (x,y)", connection=connection)} == {
            first.name, second.name,
        }  # fmt: skip
        assert Sandbox.list(pool="slow", connection=connection) == []
        first.release()
        second.release()


def test_suspended_and_resumed(config: Config, cluster: Cluster, names: Any) -> None:
    with Sandbox.claim("quick", config=config) as box:
        assert box.kept() == ()
        with pytest.warns(UserWarning, match=f"suspending default/{box.name}: no file is kept"):
            box.suspend()
        stopped = cluster.request("GET", sandboxes("default", box.sandbox))
        assert {c["type"]: c["status"] for c in stopped["status"]["conditions"]}["Suspended"] == "True"
        with Sandbox.attach(box.name, config=config) as again:  # one that is suspended is not waited for
            again.resume()
        running = cluster.request("GET", sandboxes("default", box.sandbox))
        assert {c["type"]: c["status"] for c in running["status"]["conditions"]}["Ready"] == "True"


def test_what_is_kept_while_suspended_is_said_before(config: Config, cluster: Cluster, names: Any) -> None:
    def mode() -> str:
        return str(cluster.request("GET", sandboxes("default", box.sandbox))["spec"]["operatingMode"])

    with (
        Connection(config) as connection,
        Sandbox.claim("quick", connection=connection) as box,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error", UserWarning)
        with pytest.raises(UserWarning, match="no file is kept"):
            box.suspend()
        assert mode() == "Running", "whoever makes the warning an error has lost nothing"
        main = {"name": "main", "image": "python", "volumeMounts": [{"name": "v", "mountPath": "/data"}]}
        lasting = {"containers": [main], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
        change = [{"op": "add", "path": "/spec/podTemplate/spec", "value": lasting}]
        connection.cluster.patch(sandboxes("default", box.sandbox), change)
        assert box.kept() == ("/data",)
        box.suspend()
        assert mode() == "Suspended"


def test_more_time(config: Config, cluster: Cluster, names: Any) -> None:
    with Sandbox.claim("quick", ttl=timedelta(minutes=1), config=config) as box:
        assert cluster.claims()[box.name]["spec"]["lifecycle"]["shutdownPolicy"] == "Delete"
        end = box.extend(3600)
        assert timedelta(minutes=59) < end - datetime.now(UTC) < timedelta(minutes=61)
        assert box.info().expires == end


def test_a_sandbox_whose_time_is_up_is_gone(config: Config, names: Any) -> None:
    with Connection(config) as connection, Sandbox.claim("quick", ttl=1, connection=connection) as box:
        with connection.cluster.watch(claims("default"), fields=f"metadata.name={box.name}", timeout=30) as events:
            assert any(event.type == "DELETED" for event in events)
        with pytest.raises(SandboxGone, match="has ended"):
            box.info()
        for call in (box.suspend, box.resume):
            with pytest.raises(SandboxGone, match="has ended"):
                call()
        with pytest.raises(SandboxGone):
            box.extend(60)


def test_another_claim_of_the_same_name_is_not_touched(config: Config, cluster: Cluster, names: Any) -> None:
    box = Sandbox.claim("quick", name="twice", config=config)
    cluster.request("DELETE", claims("default", "twice"))
    with Sandbox.claim("quick", name="twice", config=config) as other:
        with pytest.raises(SandboxGone):
            box.extend(60)
        box.release()
        assert other.info().uid == other.uid


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_an_unknown_pool_fails_at_once(config: Config, names: Any, kind: str) -> None:
    async def claim() -> Any:
        if kind == "async":
            return await AsyncSandbox.claim("nowhere", timeout=60, config=config)
        return await asyncio.to_thread(lambda: Sandbox.claim("nowhere", timeout=60, config=config))

    with pytest.raises(PoolNotFound, match="'nowhere' in namespace default") as caught:
        await claim()
    assert caught.value.claim.startswith("default/nowhere-")


def test_a_missing_template_fails_at_once_with_the_reason(config: Config, names: Any) -> None:
    with pytest.raises(ClaimFailed, match='SandboxTemplate "absent" not found') as caught:
        Sandbox.claim("orphan", timeout=60, config=config)
    assert caught.value.reason == "TemplateNotFound"


def test_a_sandbox_that_is_not_ready_in_time(config: Config, names: Any) -> None:
    with pytest.raises(ClaimTimeout, match=r"is not ready after 0\.3 s: .*sandpool why claim/") as caught:
        Sandbox.claim("slow", timeout=0.3, config=config)
    assert isinstance(caught.value, TimeoutError)


def test_a_claim_that_is_in_line_says_so(config: Config, cluster: Cluster, names: Any) -> None:
    """Also before its controller has written that into it, and never that nobody looks after it."""
    base = f"/apis/{EXTENSIONS}/namespaces/default/sandboxwarmpools"
    cluster.request("POST", base, pool("stuck", 2, "slow"))
    try:
        became(cluster.data_dir, POOLS, lambda pools: bool(pools["stuck"].status.conditions))
        with pytest.raises(ClaimTimeout, match=r"[Ww]ait\w* for a sandbox of pool '?stuck") as caught:
            Sandbox.claim("stuck", timeout=0.2, config=config)
        assert "no controller" not in str(caught.value)
    finally:
        cluster.request("DELETE", f"{base}/stuck")


async def test_a_claim_that_is_deleted_while_it_is_waited_for(config: Config, cluster: Cluster, names: Any) -> None:
    waiting = asyncio.ensure_future(_claim("slow", name="doomed", timeout=60, config=config))
    await _until_there(cluster, "doomed")
    await asyncio.to_thread(cluster.request, "DELETE", claims("default", "doomed"))
    with pytest.raises(ClaimDeleted, match="doomed was deleted"):
        await waiting


async def test_who_is_cancelled_leaves_nothing_behind(config: Config, cluster: Cluster, names: Any) -> None:
    waiting = asyncio.ensure_future(_claim("slow", name="given-up", timeout=60, config=config))
    await _until_there(cluster, "given-up")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert "given-up" not in names()


async def test_who_is_cancelled_at_any_moment_leaves_nothing_behind(config: Config, names: Any) -> None:
    async with AsyncConnection(config) as connection:
        for turns in range(0, 60, 3):
            waiting = asyncio.ensure_future(_claim("quick", connection=connection))
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            try:
                await (await waiting).release()
            except asyncio.CancelledError:
                pass


def test_threads_share_a_connection(config: Config, names: Any) -> None:
    together = threading.Barrier(6)

    def work(connection: Connection) -> str:
        together.wait(20)
        with Sandbox.claim("quick", connection=connection) as box:
            assert box.info().state is State.READY
            return box.sandbox

    with Connection(config) as connection, ThreadPoolExecutor(6) as threads:
        found = [task.result() for task in [threads.submit(work, connection) for _ in range(6)]]
    assert len(set(found)) == 6


async def test_many_at_once(config: Config, names: Any) -> None:
    async with AsyncConnection(config) as connection, asyncio.TaskGroup() as group:

        async def work() -> None:
            async with AsyncSandbox.claim("quick", connection=connection) as box:
                assert box.sandbox

        for _ in range(12):
            group.create_task(work())


def test_a_handle_that_is_forgotten_says_so(config: Config, cluster: Cluster) -> None:
    with Connection(config) as connection, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        box = Sandbox.claim("quick", connection=connection)
        name = box.name
        del box
        gc.collect()
    assert [one.category for one in caught if name in str(one.message)] == [ResourceWarning]
    cluster.request("DELETE", claims("default", name))


def test_an_unknown_token(cluster: Cluster, tmp_path: Path) -> None:
    config = Config(data_dir=cluster.data_dir, token="nobody")
    with pytest.raises(Denied, match="check the token"):
        Sandbox.claim("quick", config=config)


def test_a_quota_that_is_used_up_is_no_matter_of_tokens(config: Config, cluster: Cluster) -> None:
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": "few"}})
    hard = {"count/sandboxclaims.extensions.agents.x-k8s.io": "0"}
    quota = {"metadata": {"name": "team"}, "spec": {"hard": hard}}
    cluster.request("POST", "/api/v1/namespaces/few/resourcequotas", quota)
    with pytest.raises(
        ClaimFailed, match=r"exceeded quota: team, .*; release claims that you no longer need"
    ) as caught:
        Sandbox.claim("quick", config=replace(config, namespace="few"))
    assert caught.value.reason == "QuotaExceeded"


def test_no_way_in(config: Config, cluster: Cluster, names: Any) -> None:
    if cluster.running.router:
        pytest.skip("this cluster has one")
    with Sandbox.claim("quick", config=config) as box:
        with pytest.raises(NotConfigured, match="hollow"):
            box.run("true")
        with pytest.raises(NotConfigured):
            box.url(80)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [((5,), {}, ValueError, "name a pool"), (("quick",), {"env": ["A=1"]}, TypeError, "env is list; give a mapping"),
     (("quick",), {"env": {"A": 1}}, TypeError, "'A' in env is int"), (("quick",), {"ttl": "10m"}, ValueError, "'10m'"),
     (("quick",), {"labels": {"run": 7}}, TypeError, "'run'.* is 7, of type int; values must be str")],
)  # fmt: skip
def test_nonsense_leaves_no_claim_behind(
    config: Config, names: Any, arguments: Any, options: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=words):
        Sandbox.claim(*arguments, **options, config=config)


@pytest.mark.parametrize("port", [0, -1, 65536, "80", None])
def test_an_address_of_no_port(config: Config, port: Any) -> None:
    with Sandbox.claim("quick", config=config) as box, pytest.raises(ValueError, match="from 1 to 65535"):
        box.url(port)


def test_an_unknown_namespace(config: Config) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        Sandbox.claim("quick", namespace="nowhere", config=config)


async def _claim(*arguments: Any, **options: Any) -> AsyncSandbox:
    return await AsyncSandbox.claim(*arguments, **options)


async def _until_there(cluster: Cluster, name: str) -> None:
    while name not in await asyncio.to_thread(cluster.claims):
        await asyncio.sleep(0.01)


async def test_giving_back_can_be_tried_again(config: Config, cluster: Cluster, names: Any) -> None:
    """The API server is gone for a moment: release fails, says so, and works later."""
    found = resolve_here(config)
    async with a_proxy(found.cluster.server) as proxy:
        resolved = replace(found, cluster=replace(found.cluster, server=proxy.url))
        async with AsyncConnection(resolved=resolved) as connection:
            box = await AsyncSandbox.claim("quick", connection=connection)
            await proxy.shut()
            with pytest.raises(Refused):
                await box.release()
            await proxy.open()
            await box.release()
            assert repr(box).endswith("(was released)>")
