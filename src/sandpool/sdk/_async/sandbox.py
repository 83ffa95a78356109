"""The sandbox handle: claim a sandbox, use it, release it."""

from __future__ import annotations

import builtins
import os
import time
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from sandpool.kube.errors import Invalid, NotFound
from sandpool.sdk._async.claiming import ClaimRequest, give_back, obtain, wait_ready
from sandpool.sdk._async.cluster import Cluster, Object
from sandpool.sdk._async.connection import AsyncConnection, ConnectionLease, lease_connection
from sandpool.sdk._async.data_plane import DataPlane
from sandpool.sdk._async.failure_diagnosis import FailureDiagnosis
from sandpool.sdk._async.files import AsyncFiles
from sandpool.sdk._async.operating_mode import RUNNING, SUSPENDED, set_operating_mode
from sandpool.sdk._async.processes import AsyncCommands
from sandpool.sdk._async.transport import Opening, surely
from sandpool.sdk.api_paths import claims, sandboxes
from sandpool.sdk.claims import (
    EXPIRED,
    SandboxInfo,
    State,
    checked_labels,
    claim_body,
    extension,
    generated_name,
    info_of,
    sandbox_name,
    shutdown_time,
)
from sandpool.sdk.command import environment
from sandpool.sdk.config import Config
from sandpool.sdk.errors import ClaimFailed, NotConfigured, Released, SandboxGone, SandboxNotFound
from sandpool.sdk.suspension import kept_paths, outlook
from sandpool.wire.paths import TOKENS

PATIENCE = 60.0
"""Default seconds for suspending and resuming."""


class AsyncSandbox(AsyncCommands):
    """A sandbox. Get one with `claim` or `attach`; run commands with its methods and reach its files with `files`."""

    files: AsyncFiles
    """The sandbox's files and directories."""

    def __init__(self, lease: ConnectionLease, claim: Object, *, env: Mapping[str, str], owned: bool) -> None:
        """Internal: use `claim` or `attach`."""
        self._lease = lease
        self._connection = connection = lease.connection
        self._owned = owned  # the claim ends with this handle
        self._ended = ""
        self._claim = claim
        self._env = dict(env)
        self._plane = DataPlane(connection, self.namespace, sandbox_name(claim))
        self._diagnosis = FailureDiagnosis(connection.cluster, self._plane, claim)
        self._plane.ask(self._diagnosis)
        self.files = AsyncFiles(self._plane)

    @classmethod
    def claim(
        cls,
        pool: str,
        *,
        name: str | None = None,
        namespace: str | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        ttl: float | timedelta | None = None,
        timeout: float = 30.0,
        config: Config | None = None,
        connection: AsyncConnection | None = None,
    ) -> Opening[AsyncSandbox]:
        """Claims a sandbox from a warm pool and returns it ready to use.

        `async with` releases it at the end, also after an error; otherwise call `release` yourself.

        `name` is the claim's name. Default: the pool's name plus a random suffix. `env` is added to the environment of everything you
        run through this handle. `labels` go onto the claim. Set `ttl` (seconds, or a timedelta) so the sandbox is deleted even if
        your program is killed; `extend` prolongs it. Raises ClaimTimeout if no sandbox is ready within `timeout` seconds, and
        ClaimFailed or PoolNotFound at once if none ever will be. In either case the claim is deleted.

        `config` says which cluster to use. Default: SANDPOOL_* variables, or the cluster on this machine. A sandbox with a `config`
        opens its own connections unless you pass a `connection`; all others in a program share one.
        """
        return Opening(cls._claimed(pool, name, namespace, env or {}, labels or {}, ttl, timeout, config, connection))

    @classmethod
    def attach(
        cls,
        name: str,
        *,
        namespace: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        config: Config | None = None,
        connection: AsyncConnection | None = None,
    ) -> Opening[AsyncSandbox]:
        """Attaches to the sandbox of an existing claim. Leaving `async with` does not release it.

        Waits at most `timeout` seconds until the sandbox is ready, unless it is suspended. Raises SandboxNotFound if there is no
        claim of this name, and SandboxGone if it has expired."""
        return Opening(cls._attached(name, namespace, env or {}, timeout, config, connection))

    @classmethod
    async def list(
        cls,
        *,
        namespace: str | None = None,
        labels: Mapping[str, str] | str | None = None,
        pool: str | None = None,
        config: Config | None = None,
        connection: AsyncConnection | None = None,
    ) -> builtins.list[SandboxInfo]:
        """Lists the claims of a namespace, oldest first. `labels` is a mapping, or a label selector as kubectl takes it."""
        if not isinstance(labels, str):
            labels = ",".join(f"{name}={value}" for name, value in checked_labels(labels or {}).items())
        lease = await lease_connection(connection, config)
        used = lease.connection
        try:
            answer = await used.cluster.list(claims(namespace or used.namespace), labels=labels)
        finally:
            await lease.end()
        found = [info_of(item) for item in answer.get("items") or ()]
        return sorted((one for one in found if pool in (None, one.pool)), key=_age)

    @property
    def name(self) -> str:
        """The claim's name, which `attach` takes."""
        return str(self._claim["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self._claim["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        """The claim's uid."""
        return str(self._claim["metadata"]["uid"])

    @property
    def pool(self) -> str:
        return str(self._claim["spec"]["warmPoolRef"]["name"])

    @property
    def sandbox(self) -> str:
        """Name of the Sandbox behind this handle. If somebody deletes it, the claim gets another one: the next call raises
        SandboxReplaced once, and from then on the handle uses the new one."""
        return self._plane.sandbox

    async def info(self) -> SandboxInfo:
        """The current state, with the number of restarts and the last reason. Raises SandboxGone if the claim has ended."""
        return await self._diagnosis.with_restarts(info_of(await self._refresh()))

    async def release(self) -> None:
        """Releases the sandbox: it is deleted with everything in it. Calling it again does nothing, unless it failed."""
        if self._ended:
            return
        self._plane.shut(f"{self.namespace}/{self.name} was released; claim or attach again")
        await surely(give_back(self._connection.cluster, self.namespace, self.name, self.uid))
        self._end("was released")
        await self._lease.end()

    async def close(self) -> None:
        """Closes this handle. The sandbox keeps running: use `attach` to get it back."""
        if not self._ended:
            self._end("was closed")
            await self._lease.end()

    async def suspend(self, timeout: float = PATIENCE) -> None:
        """Stops the sandbox. Returns when it has stopped; `resume` starts it again.

        All processes end. Only files in the directories that `kept` lists survive: those on persistent volumes, which a template
        declares in `volumeClaimTemplates`. The `/workspace` of the pool that `sandpool up` creates is not one of them. If no file is
        kept, a UserWarning says so before the sandbox stops."""
        box = await self._present()
        if not kept_paths(box):
            warnings.warn(f"suspending {self.namespace}/{self.name}: {outlook(box)}", UserWarning, stacklevel=2)
        await self._set_operating_mode(SUSPENDED, timeout)

    async def kept(self) -> tuple[str, ...]:
        """The directories whose files survive `suspend` and `resume`; empty if there are none. All other files are lost."""
        return kept_paths(await self._present())

    async def resume(self, timeout: float = PATIENCE) -> None:
        """Starts a suspended sandbox again. Returns when it can be used."""
        await self._set_operating_mode(RUNNING, timeout)

    async def extend(self, ttl: float | timedelta) -> datetime:
        """Sets the remaining lifetime to `ttl` (seconds, or a timedelta) from now. Returns when the sandbox will end."""
        end = shutdown_time(ttl, datetime.now(UTC))
        change = extension(await self._refresh(), end)
        try:
            self._claim = await self._connection.cluster.patch(claims(self.namespace, self.name), change)
        except (NotFound, Invalid) as error:
            await self._refresh()  # raises if it has ended meanwhile
            raise error from None
        expires = info_of(self._claim).expires
        assert expires is not None
        return expires

    async def url(self, port: int, *, ttl: float | None = None) -> str:
        """A URL of a port in the sandbox, for HTTP and WebSocket. Whoever has it can use that port, and nothing else, for `ttl`
        seconds (default: an hour). It needs no header and no other credential."""
        self._check_open()
        asked: Any = port
        if not (isinstance(asked, int) and 0 < asked < 1 << 16):
            raise ValueError(f"port is {port!r}; give a number from 1 to 65535")
        resolved = self._connection.resolved
        if not resolved.router:  # a router behind a tunnel has no address that a browser could use
            raise NotConfigured(
                f"no URL for a port of {self.namespace}/{self.sandbox} is available: {resolved.no_router}"
            )
        wish: dict[str, Any] = {"namespace": self.namespace, "sandbox": self.sandbox, "port": port}
        if self._plane.uid:
            wish["uid"] = self._plane.uid
        if ttl is not None:
            wish["seconds"] = int(ttl)
        return await self._plane.port_url(TOKENS, wish)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._owned:
                await self.release()
        finally:
            await self.close()

    def __repr__(self) -> str:
        ended = f" ({self._ended})" if self._ended else ""
        return f"<{type(self).__name__} {self.namespace}/{self.name} in sandbox {self.sandbox or 'none yet'}{ended}>"

    def __del__(self) -> None:
        if self.__dict__.get("_owned") and not self._ended:
            warnings.warn(
                f"{self!r} was never released and keeps running; use it in a `with` statement, or call release()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    @classmethod
    async def _claimed(
        cls,
        pool: str,
        name: str | None,
        namespace: str | None,
        env: Mapping[str, str],
        labels: Mapping[str, str],
        ttl: float | timedelta | None,
        timeout: float,
        config: Config | None,
        connection: AsyncConnection | None,
    ) -> AsyncSandbox:
        asked: Any = pool  # whoever has no type checker may give anything
        if not (isinstance(asked, str) and asked):
            raise ValueError("name a pool: `sandpool get pools` lists the existing ones")
        env = environment(env)  # checked before a claim exists that would be left behind
        labels = checked_labels(labels)
        lease = await lease_connection(connection, config)
        used = lease.connection
        try:
            where, request = namespace or used.namespace, os.urandom(8).hex()
            chosen = name or generated_name(pool, int.from_bytes(os.urandom(12), "big"))
            body = claim_body(chosen, pool, labels, ttl, datetime.now(UTC), request, used.mark)
            wish = ClaimRequest(body, where, chosen, pool, request, timeout)
            claim = await obtain(used.cluster, wish, used.claim_watch(where))
            box = cls(lease, claim, env=env, owned=True)
            if name or box.sandbox == chosen:
                # A chosen name may be reused, and a sandbox that was started for the claim has the claim's name, as would
                # the next one: so the handle also remembers the uid.
                await box._identify_or_release()
            return box
        except BaseException:
            await lease.end()
            raise

    @classmethod
    async def _attached(
        cls,
        name: str,
        namespace: str | None,
        env: Mapping[str, str],
        timeout: float,
        config: Config | None,
        connection: AsyncConnection | None,
    ) -> AsyncSandbox:
        env = environment(env)
        lease = await lease_connection(connection, config)
        used = lease.connection
        try:
            where = namespace or used.namespace
            claim = await _existing(used.cluster, where, name)
            if info_of(claim).state is not State.SUSPENDED:
                pool = str(claim["spec"]["warmPoolRef"]["name"])
                wish = ClaimRequest({}, where, name, pool, "", timeout)
                claim = await _ready(used.cluster, claim, wish)
            box = cls(lease, claim, env=env, owned=False)
            await box._identify()
            return box
        except BaseException:
            await lease.end()
            raise

    async def _identify(self) -> None:
        """Reads the uid of the sandbox, so that no other one of its name is ever used."""
        self._plane.uid = str((await self._present())["metadata"]["uid"])

    async def _present(self) -> Object:
        """The Sandbox as it is now."""
        self._check_open()
        try:
            return await self._connection.cluster.get(sandboxes(self.namespace, self.sandbox))
        except NotFound:
            raise SandboxGone(f"claim {self.namespace}/{self.name}: its sandbox {self.sandbox} has ended") from None

    async def _identify_or_release(self) -> None:
        try:
            await self._identify()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise

    async def _refresh(self) -> Object:
        self._check_open()
        try:
            claim = await self._connection.cluster.get(claims(self.namespace, self.name))
        except NotFound:
            claim = {}
        if not claim or claim["metadata"]["uid"] != self.uid:
            raise SandboxGone(f"claim {self.namespace}/{self.name} has ended; claim another sandbox")
        self._claim = claim
        return claim

    async def _set_operating_mode(self, mode: str, timeout: float) -> None:
        self._check_open()
        if not self._plane.uid:
            await self._identify()
        try:
            await set_operating_mode(
                self._connection.cluster, self.namespace, self.sandbox, self._plane.uid, mode, timeout
            )
        except SandboxGone as error:
            raise await self._plane.explain(error) from None
        finally:
            self._diagnosis.mode_changed()  # also if nobody waited for its end

    def _check_open(self) -> None:
        if self._ended:
            raise Released(f"{self.namespace}/{self.name} {self._ended}; claim or attach again")

    def _end(self, how: str) -> None:
        self._ended = how
        self._plane.shut(f"{self.namespace}/{self.name} {how}; claim or attach again")


async def _existing(cluster: Cluster, namespace: str, name: str) -> Object:
    try:
        return await cluster.get(claims(namespace, name))
    except NotFound:
        raise SandboxNotFound(
            f"there is no claim {name!r} in namespace {namespace}; `sandpool ls` lists the existing ones"
        ) from None


async def _ready(cluster: Cluster, claim: Object, wish: ClaimRequest) -> Object:
    """The claim, ready. A claim that is kept after its end (`Retain`) has no sandbox any more."""
    try:
        return await wait_ready(cluster, claim, wish, time.monotonic() + wish.timeout)
    except ClaimFailed as error:
        if error.reason not in EXPIRED:
            raise
        raise SandboxGone(f"{wish} has expired, and its sandbox is gone; claim another one") from None


def _age(info: SandboxInfo) -> tuple[float, str]:
    return (info.created.timestamp() if info.created else 0.0, info.name)
