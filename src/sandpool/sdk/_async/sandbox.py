"""A sandbox that is yours: claim one, use it, give it back."""

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
from sandpool.sdk._async.claiming import Wish, give_back, obtain, wait_ready
from sandpool.sdk._async.cluster import Cluster, Object
from sandpool.sdk._async.connection import AsyncConnection
from sandpool.sdk._async.data_plane import DataPlane
from sandpool.sdk._async.fate import Fate
from sandpool.sdk._async.files import AsyncFiles
from sandpool.sdk._async.lending import Loan, borrow
from sandpool.sdk._async.processes import AsyncCommands
from sandpool.sdk._async.steering import RUNNING, SUSPENDED, steer
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
"""Seconds for suspending and resuming, unless said otherwise."""


class AsyncSandbox(AsyncCommands):
    """One sandbox. Get it from `claim` or `attach`; what runs in it and its files are methods and `files`."""

    files: AsyncFiles
    """The sandbox's files and folders."""

    def __init__(self, loan: Loan, claim: Object, *, env: Mapping[str, str], owned: bool) -> None:
        """Not called by users: `claim` and `attach` do."""
        self._loan = loan
        self._connection = connection = loan.connection
        self._owned = owned  # the claim ends with this handle
        self._ended = ""
        self._claim = claim
        self._env = dict(env)
        self._plane = DataPlane(connection, self.namespace, sandbox_name(claim))
        self._fate = Fate(connection.cluster, self._plane, claim)
        self._plane.ask(self._fate)
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
        """A sandbox of a warm pool, ready to be used.

        In `async with` it is released at the end, also after an error; otherwise call `release` yourself.

        `env` is the environment of everything that is run through this handle. `labels` are those of the claim. After `ttl`
        (seconds, or a timedelta) the sandbox ends by itself; `extend` gives it more. If there is no sandbox within `timeout`
        seconds, ClaimTimeout says what it waits for; if there never will be one, ClaimFailed or PoolNotFound says why at once. In
        either case nothing is left behind.

        `config` says which cluster, unless SANDPOOL_* or a cluster on this machine do; such a sandbox has connections of its own,
        unless it is given a `connection`. Without either, all sandboxes of a program share theirs.
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
        """The sandbox of a claim that exists. Leaving `async with` does not release it.

        One that is not ready yet is waited for, at most `timeout` seconds; one that is suspended is not. SandboxNotFound if there
        is no claim of this name, SandboxGone if it has expired."""
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
        """What is claimed in a namespace, the oldest first. `labels` is a mapping or a selector as kubectl takes it."""
        if not isinstance(labels, str):
            labels = ",".join(f"{name}={value}" for name, value in checked_labels(labels or {}).items())
        loan = await borrow(connection, config)
        used = loan.connection
        try:
            answer = await used.cluster.list(claims(namespace or used.namespace), labels=labels)
        finally:
            await loan.end()
        found = [info_of(item) for item in answer.get("items") or ()]
        return sorted((one for one in found if pool in (None, one.pool)), key=_age)

    @property
    def name(self) -> str:
        """Of the claim: `attach` takes it."""
        return str(self._claim["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self._claim["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        """Of the claim."""
        return str(self._claim["metadata"]["uid"])

    @property
    def pool(self) -> str:
        return str(self._claim["spec"]["warmPoolRef"]["name"])

    @property
    def sandbox(self) -> str:
        """Name of the Sandbox to which this handle leads. If somebody deletes it, the claim gets another one; the call that finds
        that out raises SandboxReplaced, and the handle leads to the new one."""
        return self._plane.sandbox

    async def info(self) -> SandboxInfo:
        """How it is now, with how often it was started again and why. SandboxGone if the claim has ended."""
        return await self._fate.counted(info_of(await self._refresh()))

    async def release(self) -> None:
        """Gives the sandbox back: it ends, with everything in it. Once more does nothing, unless it failed."""
        if self._ended:
            return
        self._plane.shut(f"{self.namespace}/{self.name} was released; claim or attach again")
        await surely(give_back(self._connection.cluster, self.namespace, self.name, self.uid))
        self._end("was released")
        await self._loan.end()

    async def close(self) -> None:
        """Lets go of this handle. The sandbox stays: `attach` finds it again."""
        if not self._ended:
            self._end("was closed")
            await self._loan.end()

    async def suspend(self, timeout: float = PATIENCE) -> None:
        """Stops the sandbox. Returns when it has stopped; `resume` starts it again.

        All processes end, and only files in the directories that `kept` lists are there again after `resume`: persistent volumes,
        which a template declares in `volumeClaimTemplates`. The `/workspace` of the pool that `sandpool up` begins with is not one.
        If no file is kept, a UserWarning says so before the sandbox stops."""
        box = await self._present()
        if not kept_paths(box):
            warnings.warn(f"suspending {self.namespace}/{self.name}: {outlook(box)}", UserWarning, stacklevel=2)
        await self._steer(SUSPENDED, timeout)

    async def kept(self) -> tuple[str, ...]:
        """The directories whose files survive `suspend` and `resume`; empty if there are none. All other files are lost."""
        return kept_paths(await self._present())

    async def resume(self, timeout: float = PATIENCE) -> None:
        """Starts a suspended sandbox again. Returns when it can be used."""
        await self._steer(RUNNING, timeout)

    async def extend(self, ttl: float | timedelta) -> datetime:
        """From now on the sandbox lives for `ttl` (seconds, or a timedelta), whatever was said before. Gives when it ends."""
        end = shutdown_time(ttl, datetime.now(UTC))
        change = extension(await self._refresh(), end)
        try:
            self._claim = await self._connection.cluster.patch(claims(self.namespace, self.name), change)
        except (NotFound, Invalid) as error:
            await self._refresh()  # says so if it has ended meanwhile
            raise error from None
        expires = info_of(self._claim).expires
        assert expires is not None
        return expires

    async def url(self, port: int, *, ttl: float | None = None) -> str:
        """An address of a port in the sandbox, for HTTP and WebSocket: whoever has it can use that port, and nothing else, for
        `ttl` seconds (an hour, if not said). It needs no header and no other credential."""
        self._check_open()
        asked: Any = port
        if not (isinstance(asked, int) and 0 < asked < 1 << 16):
            raise ValueError(f"port is {port!r}; give a number from 1 to 65535")
        resolved = self._connection.resolved
        if not resolved.router:  # what a tunnel reaches has no address that a browser could use
            raise NotConfigured(
                f"no address for a port of {self.namespace}/{self.sandbox} can be made: {resolved.no_router}"
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
                f"{self!r} was never released: it goes on living; use it in a with statement, or call release()",
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
            raise ValueError("name a pool: `sandpool get pools` lists those there are")
        env = environment(env)  # before there is a claim that a mistake in it would leave behind
        labels = checked_labels(labels)
        loan = await borrow(connection, config)
        used = loan.connection
        try:
            where, request = namespace or used.namespace, os.urandom(8).hex()
            chosen = name or generated_name(pool, int.from_bytes(os.urandom(12), "big"))
            body = claim_body(chosen, pool, labels, ttl, datetime.now(UTC), request, used.mark)
            wish = Wish(body, where, chosen, pool, request, timeout)
            claim = await obtain(used.cluster, wish, used.news(where))
            box = cls(loan, claim, env=env, owned=True)
            if name or box.sandbox == chosen:
                # A name that somebody chose may be used again, and a sandbox that was started for the claim has the claim's, as would
                # the next one: so it is remembered by more than its name.
                await box._identify_or_release()
            return box
        except BaseException:
            await loan.end()
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
        loan = await borrow(connection, config)
        used = loan.connection
        try:
            where = namespace or used.namespace
            claim = await _existing(used.cluster, where, name)
            if info_of(claim).state is not State.SUSPENDED:
                pool = str(claim["spec"]["warmPoolRef"]["name"])
                wish = Wish({}, where, name, pool, "", timeout)
                claim = await _ready(used.cluster, claim, wish)
            box = cls(loan, claim, env=env, owned=False)
            await box._identify()
            return box
        except BaseException:
            await loan.end()
            raise

    async def _identify(self) -> None:
        """Finds the uid of the sandbox, so that no other one of its name is ever meant."""
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

    async def _steer(self, mode: str, timeout: float) -> None:
        self._check_open()
        if not self._plane.uid:
            await self._identify()
        try:
            await steer(self._connection.cluster, self.namespace, self.sandbox, self._plane.uid, mode, timeout)
        except SandboxGone as error:
            raise await self._plane.explained(error) from None
        finally:
            self._fate.steered()  # also where nobody waited for its end

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
            f"there is no claim {name!r} in namespace {namespace}; `sandpool ls` lists those there are"
        ) from None


async def _ready(cluster: Cluster, claim: Object, wish: Wish) -> Object:
    """The claim, ready. One that is kept after its end (`Retain`) was a sandbox, and is none any more."""
    try:
        return await wait_ready(cluster, claim, wish, time.monotonic() + wish.timeout)
    except ClaimFailed as error:
        if error.reason not in EXPIRED:
            raise
        raise SandboxGone(f"{wish} has expired, and its sandbox is gone; claim another one") from None


def _age(info: SandboxInfo) -> tuple[float, str]:
    return (info.created.timestamp() if info.created else 0.0, info.name)
