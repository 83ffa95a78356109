"""What a program that uses the `k8s-agent-sandbox` package does on a cluster: the package as it is published, in both its flavours.

Each scenario is one such program. It gets a user, who makes pools and looks at what is there, and `Sdk`, which opens
clients. Only what the package asks of Kubernetes is shown: no sandbox is talked to. (They are in integration/compat.)"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from k8s_agent_sandbox.exceptions import (
    SandboxClaimFailedError,
    SandboxNotFoundError,
    SandboxTemplateNotFoundError,
    SandboxWarmPoolNotFoundError,
)
from k8s_agent_sandbox.models import SandboxInClusterConnectionConfig
from k8s_agent_sandbox.sandbox_client import SandboxClient
from kubernetes import client as official
from kubernetes import config as official_config

from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import CLAIMS, PODS, SANDBOXES, raw
from support.kube.stage import User

_LACKING = [name for name in ("kubernetes_asyncio", "httpx") if find_spec(name) is None]
_ASYNC = pytest.mark.skipif(bool(_LACKING), reason=f"k8s-agent-sandbox[async] is not installed: no {_LACKING}")
FLAVOURS = ("sync", pytest.param("async", marks=_ASYNC))
PATIENT = 60
"""Seconds given to calls that must answer long before: each has an error of its own for having waited in vain."""


async def do(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """A call of either flavour; one that blocks gets a thread, so that the test's own requests go on."""
    if inspect.iscoroutinefunction(call):
        return await call(*arguments, **options)
    return await asyncio.to_thread(call, *arguments, **options)


@dataclass(frozen=True, slots=True)
class Sdk:
    flavour: str
    kubeconfig: Path
    namespace: str
    connection: Any = None  # how sandboxes are reached; None: as a client does that is told nothing

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        """A client of its own, used as its documentation says: as a context manager, which gives back at its end."""
        opened = self._blocking() if self.flavour == "sync" else self._asynchronous()
        async with opened as client:
            yield client

    async def create(self, client: Any, pool: str = "python", **options: Any) -> Any:
        return await do(client.create_sandbox, pool, self.namespace, PATIENT, **options)

    async def listed(self, client: Any, selector: str | None = None) -> list[str]:
        return sorted(await do(client.list_all_sandboxes, self.namespace, label_selector=selector))

    @property
    def refused(self) -> type[Exception]:
        """What a client of this flavour raises when the server refuses."""
        if self.flavour == "sync":
            return official.ApiException
        kind: type[Exception] = import_module("kubernetes_asyncio").client.ApiException
        return kind

    @contextlib.asynccontextmanager
    async def _blocking(self) -> AsyncIterator[Any]:
        configuration = official.Configuration()
        load: Any = official_config.load_kube_config
        load(str(self.kubeconfig), client_configuration=configuration)
        with official.ApiClient(configuration) as api_client:
            client: SandboxClient[Any] = SandboxClient(self.connection, api_client=api_client)
            await asyncio.to_thread(client.__enter__)
            try:
                yield client
            finally:
                await asyncio.to_thread(client.__exit__, None, None, None)
                api_client.rest_client.pool_manager.clear()

    @contextlib.asynccontextmanager
    async def _asynchronous(self) -> AsyncIterator[Any]:
        library, sandboxes = (
            import_module("kubernetes_asyncio"),
            import_module("k8s_agent_sandbox.async_sandbox_client"),
        )
        configuration = library.client.Configuration()
        await library.config.load_kube_config(str(self.kubeconfig), client_configuration=configuration)
        _close_what_it_left_open(library)
        async with (
            library.client.ApiClient(configuration) as api_client,
            sandboxes.AsyncSandboxClient(
                self.connection or SandboxInClusterConnectionConfig(), cleanup=False, api_client=api_client
            ) as client,
        ):
            yield client


def _close_what_it_left_open(library: Any) -> None:
    """It keeps the files that it makes of certificates open for good, which our leak check would put down to a test."""
    made = set(library.config.kube_config._temp_files.values())
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}") in made:
                os.close(int(number))


async def gone(user: User, name: str) -> None:
    """The sandbox and its pod; the claim is looked at by who deleted it."""

    async def taken() -> bool:
        return name not in {one.metadata.name for kind in (SANDBOXES, PODS) for one in await user.all(kind)}

    await user.until(taken, f"sandbox {name} and its pod are gone")


async def warm(user: User, replicas: int = 2) -> set[str]:
    """A full pool; the names of its members."""
    await user.template()
    await user.pool(replicas)
    await user.filled(replicas)
    return {one.metadata.name for one in await user.members()}


async def created_found_and_deleted(sdk: Sdk, user: User) -> None:
    members = await warm(user)
    async with sdk.client() as client, sdk.client() as other:
        box = await sdk.create(client, labels={"team": "red"})
        assert box.sandbox_id in members
        assert (await do(box.status))[0] == "SandboxReady"
        assert await do(box.get_pod_name) == box.sandbox_id
        pod = await user.get(raw(PODS), box.sandbox_id)
        assert await do(box.get_pod_ip) == pod.body["status"]["podIP"]
        label = "agents.x-k8s.io/sandbox-name-hash"
        assert await do(box.get_sandbox_name_hash) == pod.body["metadata"]["labels"][label]
        assert await do(client.list_active_sandboxes) == [(sdk.namespace, box.claim_name)]
        assert await sdk.listed(other) == [box.claim_name]
        assert await sdk.listed(other, "team=red,agents.x-k8s.io/created-by=python-client") == [box.claim_name]
        assert await sdk.listed(other, "team=blue") == []
        assert await do(client.get_sandbox, box.claim_name, sdk.namespace) is box
        again = await do(other.get_sandbox, box.claim_name, sdk.namespace)
        assert (again.claim_name, again.sandbox_id) == (box.claim_name, box.sandbox_id)
        await do(client.delete_sandbox, box.claim_name, sdk.namespace)
        assert await do(client.list_active_sandboxes) == []
        await gone(user, box.sandbox_id)
        assert await sdk.listed(other) == []
        assert (await do(again.status))[0] == "SandboxNotFound"


async def many_at_once(sdk: Sdk, user: User) -> None:
    """More than are ready: those that come late wait, and nobody gets what another has."""
    await warm(user)
    async with sdk.client() as client:
        boxes = await asyncio.gather(*(sdk.create(client) for _ in range(5)))
        assert len({box.sandbox_id for box in boxes}) == 5
        assert len({await do(box.get_pod_ip) for box in boxes} - {None}) == 5
        assert await sdk.listed(client) == sorted(box.claim_name for box in boxes)
        await do(client.delete_all)
        assert await sdk.listed(client) == []


async def the_end_of_a_client_keeps_what_was_named(sdk: Sdk, user: User) -> None:
    """What the program named stays, and another program attaches to it by that name."""
    await warm(user)
    async with sdk.client() as client:
        kept = await sdk.create(client, claim_name="mine")
        given_back = await sdk.create(client)
    await gone(user, given_back.sandbox_id)
    assert [one.metadata.name for one in await user.all(CLAIMS)] == ["mine"]
    async with sdk.client() as later:
        with pytest.raises(sdk.refused) as clash:
            await sdk.create(later, claim_name="mine")
        assert getattr(clash.value, "status", None) == 409
        adopted = await sdk.create(later, claim_name="mine", adopt_existing=True)
        assert adopted.sandbox_id == kept.sandbox_id
        with pytest.raises(ValueError, match="references warm pool 'python', not 'other'"):
            await sdk.create(later, "other", claim_name="mine", adopt_existing=True)
        await do(adopted.terminate)
        assert await sdk.listed(later) == []
    await gone(user, kept.sandbox_id)


async def no_such_pool(sdk: Sdk, user: User) -> None:
    async with sdk.client() as client:
        with pytest.raises(SandboxWarmPoolNotFoundError, match="absent"):
            await sdk.create(client, "absent")
        assert await sdk.listed(client) == []  # the client takes its claim back, which the server must let it


async def no_such_template(sdk: Sdk, user: User) -> None:
    await user.pool(1, template="absent")
    async with sdk.client() as client:
        with pytest.raises(SandboxTemplateNotFoundError, match="absent"):
            await sdk.create(client)
        assert await sdk.listed(client) == []


async def no_such_claim(sdk: Sdk, user: User) -> None:
    async with sdk.client() as client:
        with pytest.raises(SandboxNotFoundError, match="'nobody' not found or resolution failed"):
            await do(client.get_sandbox, "nobody", sdk.namespace, resolve_timeout=1)
        await do(client.delete_sandbox, "nobody", sdk.namespace)  # gone already, which is what was asked for


async def what_a_claim_may_not_ask_for(sdk: Sdk, user: User) -> None:
    """Refused for good, so the client does not wait."""
    await warm(user, 1)
    async with sdk.client() as client:
        with pytest.raises(SandboxClaimFailedError, match="InvalidMetadata"):
            await sdk.create(client, pod_labels={"client-id": "me"})
        with pytest.raises(SandboxClaimFailedError, match="EnvVarsInjectionRejected"):
            await sdk.create(client, env={"WHO": "me"})
        assert await sdk.listed(client) == []


async def what_a_claim_may_ask_for(sdk: Sdk, user: User) -> None:
    await user.template(envVarsInjectionPolicy="Allowed")
    await user.pool(1)
    async with sdk.client() as client:
        box = await sdk.create(
            client,
            pod_labels={"sandbox.users.io/client-id": "me"},
            pod_annotations={"sandbox.users.io/why": "a test"},
            env={"WHO": "me"},
        )
        pod = (await user.get(raw(PODS), await do(box.get_pod_name))).body
        assert pod["metadata"]["labels"]["sandbox.users.io/client-id"] == "me"
        assert pod["metadata"]["annotations"]["sandbox.users.io/why"] == "a test"
        assert {"name": "WHO", "value": "me"} in pod["spec"]["containers"][0]["env"]


async def a_time_to_live(sdk: Sdk, user: User) -> None:
    await warm(user, 1)
    async with sdk.client() as client:
        box = await sdk.create(client, shutdown_after_seconds=4)
        claim: SandboxClaim = await user.get(CLAIMS, box.claim_name)
        assert claim.spec.lifecycle is not None
        assert claim.spec.lifecycle.shutdown_policy == "Delete"

        async def ended() -> bool:
            return await sdk.listed(client) == []

        await user.until(ended, "the claim has ended by itself")
        await gone(user, box.sandbox_id)


SCENARIOS = (
    created_found_and_deleted,
    many_at_once,
    the_end_of_a_client_keeps_what_was_named,
    no_such_pool,
    no_such_template,
    no_such_claim,
    what_a_claim_may_not_ask_for,
    what_a_claim_may_ask_for,
    a_time_to_live,
)
