"""Who stands behind a request. A token in the Authorization header, or the connection itself; never a cookie."""

from __future__ import annotations

from dataclasses import dataclass

from sandpool.base.clock import Clock
from sandpool.base.errors import SandpoolError
from sandpool.base.shares import NOBODY
from sandpool.model.metadata import Key
from sandpool.router.addressed import Addressed
from sandpool.router.callers import Callers
from sandpool.router.guard import from_browser
from sandpool.router.ports import Caller
from sandpool.router.refusals import Refusal, denied, unauthenticated, unavailable
from sandpool.router.tokens import VERSION, Scope, Signer
from sandpool.router.values import Request
from sandpool.telemetry.log import logger

log = logger(__name__)

BRING = "Send `Authorization: Bearer TOKEN`, with a token of the API server or one that was made for this sandbox"


@dataclass(frozen=True, slots=True)
class Proof:
    """Exactly one of the two: somebody whom the API server knows, or a token that speaks for itself."""

    caller: Caller | None = None
    scope: Scope | None = None

    @property
    def name(self) -> str:
        if self.caller is not None:
            return self.caller.name
        return f"token:{self.scope.namespace}/{self.scope.name}" if self.scope is not None else ""

    @property
    def tenant(self) -> str:
        """On whose account the request is: whoever holds an address of a sandbox uses it for that sandbox's namespace."""
        if self.caller is not None:
            return self.caller.tenant
        return self.scope.namespace if self.scope is not None else NOBODY


class Prover:
    def __init__(self, callers: Callers, signer: Signer, clock: Clock) -> None:
        self._callers = callers
        self._signer = signer
        self._clock = clock

    async def prove(self, request: Request, connected: Caller | None) -> Proof | Refusal:
        """`connected` is whom the connection proves. A token that is shown counts, also where it is wrong."""
        shown = request.header(b"authorization")
        if shown is None:
            if connected is None:
                return unauthenticated(f"the request does not say who asks. {BRING}")
            if from_browser(request):
                return unauthenticated("a page in a browser is not whoever opened the connection. Bring a token")
            return Proof(caller=connected)
        scheme, _, token = shown.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            return unauthenticated(f"only bearer tokens are accepted. {BRING}")
        return await self._token(token.strip())

    def scoped(self, token: str) -> Proof | Refusal:
        scope = self._signer.read(token, self._clock.now().timestamp())
        if scope is None:
            return unauthenticated("the token is wrong or has expired. Ask for a new one: POST /router/v1/tokens")
        return Proof(scope=scope)

    async def may(self, proof: Proof, wanted: Addressed) -> Refusal | None:
        """Why not; None: they may."""
        if proof.scope is not None:
            return _beyond(proof.scope, wanted)
        assert proof.caller is not None
        return await self.may_use(proof.caller, wanted.key)

    async def may_use(self, caller: Caller, key: Key) -> Refusal | None:
        try:
            if await self._callers.may_use(caller, key.namespace):
                return None
        except SandpoolError as error:
            return _cannot_ask(error)
        return denied(
            f"{caller.name} may not use sandboxes in namespace {key.namespace}. Ask whoever runs the cluster for a role "
            "that allows `create` on `sandboxes/connect` there"
        )

    async def _token(self, token: str) -> Proof | Refusal:
        if token.startswith(VERSION):
            return self.scoped(token)
        try:
            caller = await self._callers.who(token)
        except SandpoolError as error:
            return _cannot_ask(error)
        if caller is None:
            return unauthenticated(f"the API server does not know this token, or not any more. {BRING}")
        return Proof(caller=caller)


def _beyond(scope: Scope, wanted: Addressed) -> Refusal | None:
    if (scope.namespace, scope.name) != wanted.key:
        return denied(f"the token is for sandbox {scope.namespace}/{scope.name}, not for {wanted.key}")
    if scope.uid and wanted.uid and scope.uid != wanted.uid:
        return denied(f"the token is for sandbox {wanted.key} of uid {scope.uid}, not for that of uid {wanted.uid}")
    if scope.port is not None and wanted.port not in (None, scope.port):
        return denied(f"the token is for port {scope.port} of sandbox {wanted.key}, not for port {wanted.port}")
    return None


def _cannot_ask(error: SandpoolError) -> Refusal:
    # What exactly went wrong is for whoever runs the router, not for a caller whom nobody knows yet.
    log.warning("caller not checked", error=f"{type(error).__name__}: {error}")
    return unavailable("the router cannot ask the API server who this is at the moment. Try again in a moment")
