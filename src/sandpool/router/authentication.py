"""Authenticates requests: by a token in the Authorization header, or by the connection itself; never by a cookie.

Reviews of tokens by the API server are cached for a short time, under the token's SHA-256, bounded in number; failed reviews are not
cached. Requests that wait for the same review share one, and the number of reviews in flight is bounded.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sandpool.base.clock import Clock
from sandpool.base.errors import SandpoolError
from sandpool.base.shares import NOBODY
from sandpool.model.metadata import Key
from sandpool.router.addressed import Addressed
from sandpool.router.answers import Refusal, denied, unauthenticated, unavailable
from sandpool.router.guard import from_browser
from sandpool.router.ports import Authority, Caller
from sandpool.router.tokens import VERSION, Scope, Signer
from sandpool.router.values import Request
from sandpool.telemetry.log import logger

log = logger(__name__)

BRING = "Send `Authorization: Bearer TOKEN`, with a token of the API server or one that was made for this sandbox"


@dataclass(frozen=True, slots=True)
class Identity:
    """Exactly one of the two: a user known to the API server, or the scope of a token that the router signed."""

    caller: Caller | None = None
    scope: Scope | None = None

    @property
    def name(self) -> str:
        if self.caller is not None:
            return self.caller.name
        return f"token:{self.scope.namespace}/{self.scope.name}" if self.scope is not None else ""

    @property
    def tenant(self) -> str:
        """The tenant that the request is charged to: with a scoped token, the namespace of its sandbox."""
        if self.caller is not None:
            return self.caller.tenant
        return self.scope.namespace if self.scope is not None else NOBODY


class RequestAuthenticator:
    def __init__(self, authority: AuthorityCache, signer: Signer, clock: Clock) -> None:
        self._authority = authority
        self._signer = signer
        self._clock = clock

    async def authenticate(self, request: Request, connected: Caller | None) -> Identity | Refusal:
        """`connected` is the caller that the connection proves. A token in the request takes precedence, even an invalid one."""
        shown = request.header(b"authorization")
        if shown is None:
            if connected is None:
                return unauthenticated(f"the request has no credential. {BRING}")
            if from_browser(request):
                return unauthenticated(
                    "a page in a browser needs a token of its own: the connection proves only whose browser it is"
                )
            return Identity(caller=connected)
        scheme, _, token = shown.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            return unauthenticated(f"only bearer tokens are accepted. {BRING}")
        return await self._token(token.strip())

    def scoped(self, token: str) -> Identity | Refusal:
        scope = self._signer.read(token, self._clock.now().timestamp())
        if scope is None:
            return unauthenticated("the token is wrong or has expired. Ask for a new one: POST /router/v1/tokens")
        return Identity(scope=scope)

    async def authorize(self, proof: Identity, wanted: Addressed) -> Refusal | None:
        """The refusal; None if they may."""
        if proof.scope is not None:
            return _beyond(proof.scope, wanted)
        assert proof.caller is not None
        return await self.may_use(proof.caller, wanted.key)

    async def may_use(self, caller: Caller, key: Key) -> Refusal | None:
        try:
            if await self._authority.may_use(caller, key.namespace):
                return None
        except SandpoolError as error:
            return _cannot_ask(error)
        return denied(
            f"{caller.name} may not use sandboxes in namespace {key.namespace}. Ask the cluster's administrator for a role "
            "that allows `create` on `sandboxes/connect` there"
        )

    async def _token(self, token: str) -> Identity | Refusal:
        if token.startswith(VERSION):
            return self.scoped(token)
        try:
            caller = await self._authority.authenticate(token)
        except SandpoolError as error:
            return _cannot_ask(error)
        if caller is None:
            return unauthenticated(f"the API server does not accept this token. {BRING}")
        return Identity(caller=caller)


def _beyond(scope: Scope, wanted: Addressed) -> Refusal | None:
    if (scope.namespace, scope.name) != wanted.key:
        return denied(f"the token is for sandbox {scope.namespace}/{scope.name}, not for {wanted.key}")
    if scope.uid and wanted.uid and scope.uid != wanted.uid:
        return denied(f"the token is for sandbox {wanted.key} of uid {scope.uid}, not for that of uid {wanted.uid}")
    if scope.port is not None and wanted.port not in (None, scope.port):
        return denied(f"the token is for port {scope.port} of sandbox {wanted.key}, not for port {wanted.port}")
    return None


def _cannot_ask(error: SandpoolError) -> Refusal:
    # The cause is for the operator's log, not for an unauthenticated caller.
    log.warning("caller not checked", error=f"{type(error).__name__}: {error}")
    return unavailable("the router cannot reach the API server to check the token. Try again in a moment")


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LONGEST_TOKEN = 16384
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=:-]+")


@dataclass(frozen=True, slots=True)
class CacheOptions:
    yes: float = 10.0  # seconds
    no: float = 3.0
    most: int = 4096  # of each kind
    asked: int = 16  # reviews in flight


class AuthorityCache:
    """Who a token of the API server belongs to, and what they may use."""

    def __init__(self, authority: Authority, clock: Clock, memory: CacheOptions = CacheOptions()) -> None:
        self._authority = authority
        asking = asyncio.Semaphore(memory.asked)
        self._known: _TtlCache[bytes, Caller | None] = _TtlCache(clock, memory, asking)
        self._rights: _TtlCache[tuple[Caller, str], bool] = _TtlCache(clock, memory, asking)

    async def authenticate(self, token: str) -> Caller | None:
        if len(token) > LONGEST_TOKEN or _TOKEN.fullmatch(token) is None:
            return None
        digest = hashlib.sha256(token.encode()).digest()
        return await self._known.get(digest, lambda: self._authority.caller(token))

    async def may_use(self, caller: Caller, namespace: str) -> bool:
        return await self._rights.get((caller, namespace), lambda: self._authority.may_use(caller, namespace))


class _TtlCache(Generic[K, V]):
    """Cached reviews by key; the least recently used is dropped first."""

    def __init__(self, clock: Clock, memory: CacheOptions, asking: asyncio.Semaphore) -> None:
        self._clock = clock
        self._memory = memory
        self._asking = asking
        self._answers: dict[K, tuple[V, float]] = {}
        self._turns: dict[K, _Turn] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        known = self._cached(key)
        if known is not None:
            return known[0]
        turn = self._turns.setdefault(key, _Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                known = self._cached(key)  # another request asked meanwhile
                if known is not None:
                    return known[0]
                async with self._asking:
                    answer = await ask()
                self._store(key, answer)
                return answer
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[key]

    def _cached(self, key: K) -> tuple[V, float] | None:
        found = self._answers.pop(key, None)
        if found is None or found[1] <= self._clock.monotonic():
            return None
        self._answers[key] = found  # now the most recently used
        return found

    def _store(self, key: K, answer: V) -> None:
        lasts = self._memory.yes if answer else self._memory.no
        while len(self._answers) >= self._memory.most:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = (answer, self._clock.monotonic() + lasts)


class _Turn:
    __slots__ = ("lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
