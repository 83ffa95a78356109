"""Decides about requests: who asks, for which sandbox, and whether they may. Implements `values.Gate`.

    gate = RouterGate(
        directory=Directory(sandboxes_cache, clock),
        authenticator=RequestAuthenticator(AuthorityCache(authority, clock), signer, clock),  # signer: tokens.Signer([32 bytes or more])
        reach=reach, signer=signer, clock=clock, options=GateOptions(loopback=True),
        request_log=RequestLog(RouterMetrics(registry), directory.holds, clock, Activity(api, clock), AuditLog(path, clock)),
    )

Run `activity.run()` beside the server. The order is: foreign Host or Origin, the router's own paths, who, which sandbox, may they, is it there.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from sandpool.base.clock import Clock
from sandpool.base.shares import Shares
from sandpool.model.metadata import Key
from sandpool.model.sandbox import Sandbox
from sandpool.router.addressed import Addressed, addressed, for_daemon, mistaken, names_sandbox
from sandpool.router.answers import Refusal, Word, denied, invalid
from sandpool.router.authentication import Identity, RequestAuthenticator
from sandpool.router.directory import Directory, find, unidentified
from sandpool.router.guard import Allowed, foreign, forwarded, well_formed
from sandpool.router.ports import Caller, NoAnswer, Reach, Target
from sandpool.router.request_log import RequestLog
from sandpool.router.tokens import LONGEST_BODY, Signer, granted_scope, parse_token_request, token_response
from sandpool.router.values import Admitted, Answer, Outcome, Peer, Request
from sandpool.wire.headers import DEFAULT_PORT, ROUTING
from sandpool.wire.paths import PORT_URL, ROUTER_HEALTH, TOKENS

DAEMON_PORTS = frozenset({DEFAULT_PORT, 8080})
"""The port where clients of the contract expect a runtime: boxd answers there, unless a program in the sandbox listens."""
_DROPPED = frozenset(name.encode() for name in ROUTING) | {b"x-forwarded-prefix"}
_REFERER = b"referer"
_ORIGIN = b"origin"
Body = Callable[[int], Awaitable[bytes]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GateOptions:
    loopback: bool = False  # it listens on this machine only, where pages in browsers could reach it
    allowed: Allowed = field(default_factory=Allowed)
    near: Caller | None = None  # the caller of a connection that a kubelet has forwarded; None: nobody
    url: str = ""  # the address for clients; empty: the Host of the request
    requests: int = 4096  # requests in flight of all tenants together; administrators have as many again
    longest: float = 3600.0  # seconds that X-Sandbox-Timeout may ask for
    daemon_port: int | None = None  # where boxd listens for everybody in a sandbox: no token for a port leads there


class RequestRefused(Exception):  # a response, not an error
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


@dataclass(slots=True)
class _Case:
    """One request, and what the gate has found out about it so far."""

    request: Request
    peer: Peer
    caller: str = ""
    about: Key | None = None


class RouterGate:
    def __init__(
        self,
        directory: Directory,
        authenticator: RequestAuthenticator,
        reach: Reach,
        signer: Signer,
        clock: Clock,
        request_log: RequestLog,
        options: GateOptions = GateOptions(),
    ) -> None:
        self._directory = directory
        self._prover = authenticator
        self._reach = reach
        self._signer = signer
        self._clock = clock
        self._request_log = request_log
        self._options = options
        self._accounts = Accounts(options.requests)
        self.shares = self._accounts.shares

    async def admit(self, request: Request, peer: Peer, body: Body) -> Admitted | Answer:
        case = _Case(request, peer)
        self._request_log.begun(request)
        try:
            decided = await self._decide(case, body)
        except RequestRefused as turned:
            decided = turned.refusal.answer(case.caller, case.about)
        self._request_log.decided(decided)
        return decided

    def finished(self, request: Request, peer: Peer, decided: Admitted | Answer, outcome: Outcome) -> None:
        self._accounts.end(request)
        self._request_log.finished(request, peer, decided, outcome)

    async def _decide(self, case: _Case, body: Body) -> Admitted | Answer:
        request, peer = case.request, case.peer
        near = peer.proved or (self._options.near if forwarded(peer.address) else None)
        if self._options.loopback or near is not None:
            _pass(foreign(request, self._options.allowed, secure=peer.secure))
        if not request.path.startswith(b"/"):
            raise RequestRefused(invalid("", "the target of a request must be a path"))
        if not names_sandbox(request):
            path = request.path.partition(b"?")[0]
            if path == ROUTER_HEALTH.encode():
                return Answer(200, {"status": "ok"})
            if path == TOKENS.encode():
                return await self._issue(case, near, body)
            if path.startswith(f"{PORT_URL}/".encode()):
                return await self._by_address(case)
        proof = self._known(case, await self._prover.authenticate(request, near))
        wanted = _good(addressed(request))
        case.about = wanted.key
        _pass(await self._prover.authorize(proof, wanted))
        return await self._let_in(case, proof, wanted, request.path, _DROPPED)

    def _known(self, case: _Case, found: Identity | Refusal) -> Identity:
        """Authenticates; from now on the request is charged to that tenant."""
        proof = _good(found)
        case.caller = proof.name
        _pass(self._accounts.begin(case.request, proof.tenant))
        return proof

    async def _by_address(self, case: _Case) -> Admitted | Answer:
        """/port/TOKEN/PATH. Only the token counts: the URL gives access to that port, and nothing else."""
        _, _, rest = case.request.path.partition(f"{PORT_URL}/".encode())
        cut = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
        token, path = rest[:cut], rest[cut:]
        proof = self._known(case, self._prover.scoped(token.decode("latin-1")))
        scope = proof.scope
        assert scope is not None
        case.about = Key(scope.namespace, scope.name)
        if scope.port is None:
            raise RequestRefused(denied("the token is for no port, so it cannot be part of a URL. Send it as a header"))
        prefix = f"{PORT_URL}/".encode() + token
        if not path.startswith(b"/"):  # without the slash, relative links of the page would break
            return Answer(308, {}, ((b"location", prefix + b"/" + path),), case.caller, case.about)
        wanted = Addressed(case.about, scope.port, scope.uid)
        return await self._let_in(case, proof, wanted, path, _DROPPED | _confided(case.request), prefix)

    async def _let_in(
        self,
        case: _Case,
        proof: Identity,
        wanted: Addressed,
        path: bytes,
        dropped: frozenset[bytes],
        prefix: bytes = b"",
    ) -> Admitted:
        scope = proof.scope
        only = scope.port if scope is not None else None
        if only is not None and only == self._options.daemon_port:
            raise RequestRefused(denied(f"port {only} is boxd's: tokens for a port do not give access to it"))
        target = await self._find(wanted, wanted.uid or (scope.uid if scope is not None else ""))
        to_daemon = only is None and for_daemon(path)
        port = None if to_daemon else only or wanted.port or DEFAULT_PORT
        return Admitted(
            target=target,
            caller=case.caller,
            path=path,
            connect=lambda: self._connect(target, port, strictly=only is not None),
            pool=f"{target.uid}@{target.address}:{port or 'boxd'}{'!' if only is not None else ''}",
            drop=dropped,
            add=((b"x-forwarded-prefix", prefix),) if prefix else (),
            prefix=prefix,
            timeout=None if wanted.timeout is None else min(wanted.timeout, self._options.longest),
            port=port,
            tenant=proof.tenant,
        )

    async def _find(self, wanted: Addressed, uid: str) -> Target:
        def judge(sandbox: Sandbox | None) -> Target | Refusal:
            found = find(sandbox, wanted.key, uid, self._clock.now())
            if isinstance(found, Refusal) or sandbox is None:
                return found
            return mistaken(wanted, found, sandbox.status.pod_ips) or found

        return _good(await self._directory.judged(wanted.key, judge))

    async def _connect(self, target: Target, port: int | None, *, strictly: bool) -> socket.socket:
        try:
            if port is not None:
                try:
                    return await self._reach.port(target, port)
                except NoAnswer:
                    if strictly or port not in DAEMON_PORTS:
                        raise
            return await self._reach.daemon(target)
        except NoAnswer as error:  # the beginning is the contract's
            raise NoAnswer(f"Could not connect to the backend sandbox: {target.name}: {error}") from error

    async def _issue(self, case: _Case, near: Caller | None, body: Body) -> Answer:
        request = case.request
        if request.method != b"POST":
            refusal = Refusal(405, Word.METHOD, f"{TOKENS} accepts only POST")
            return Answer(405, refusal.answer().body, ((b"allow", b"POST"),))
        if not self._signer.able:
            message = "this router has no key to sign tokens with. Its operator can set one with --token-key-file"
            raise RequestRefused(Refusal(501, Word.UNABLE, message))
        proof = self._known(case, await self._prover.authenticate(request, near))
        wanted = _good(parse_token_request(await body(LONGEST_BODY + 1)))
        case.about = wanted.key
        _pass(await self._prover.authorize(proof, Addressed(wanted.key, wanted.port, wanted.uid)))
        scope = proof.scope
        if scope is not None and scope.port is not None:
            raise RequestRefused(denied("a token for a port cannot be used to get other tokens"))
        if wanted.port is not None and wanted.port == self._options.daemon_port:
            message = f"port {wanted.port} is boxd's: its URL would let anyone who has it run programs"
            raise RequestRefused(denied(f"{message}. Ask for a token without a port"))
        now = self._clock.now()
        meant = wanted.uid or (scope.uid if scope is not None else "")

        def judge(sandbox: Sandbox | None) -> Sandbox | Refusal:
            refusal = unidentified(sandbox, wanted.key, meant, now)
            return refusal or sandbox or denied("")

        sandbox = _good(await self._directory.judged(wanted.key, judge))
        made = granted_scope(wanted, sandbox.metadata.uid, now, scope.expires if scope is not None else None)
        words = token_response(self._signer.sign(made), made, self._base(case))
        return Answer(201, words, ((b"cache-control", b"no-store"),), case.caller, case.about)

    def _base(self, case: _Case) -> str:
        if self._options.url:
            return self._options.url.rstrip("/")
        host = (case.request.header(b"host") or b"").decode("latin-1")
        if not well_formed(host):
            raise RequestRefused(invalid("", "the request has no Host that could be part of a URL"))
        return f"{'https' if case.peer.secure else 'http'}://{host}"


def _good(found: T | Refusal) -> T:
    if isinstance(found, Refusal):
        raise RequestRefused(found)
    return found


def _pass(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise RequestRefused(refusal)


def _confided(request: Request) -> frozenset[bytes]:
    """Headers about the page that sent a request. The URL of another sandbox's page contains its token. The origin is the router's, never
    the sandbox's: an app that compares it with its Host would refuse its own pages, and the token proves more."""
    tells_a_key = f"{PORT_URL}/".encode() in (request.header(_REFERER) or b"")
    return frozenset({_ORIGIN, _REFERER}) if tells_a_key else frozenset({_ORIGIN})


class Accounts:
    """Requests in flight by tenant: tenants share a limit, so that none locks the others out.

    A request counts from its authentication to its end, a WebSocket or a tunnel for as long as it lasts. They cannot be revoked, so
    the rule is the dynamic threshold of base/shares.py. Idle connections do not count: they are closed
    when another one needs their place.
    """

    def __init__(self, total: int) -> None:
        self.shares = Shares(total)
        self._charged: dict[int, tuple[Request, str]] = {}  # by identity: clients choose the ids of requests

    def begin(self, request: Request, tenant: str) -> Refusal | None:
        """Why it is refused; None: it is counted."""
        if not self.shares.fits(tenant):
            whose = f"{tenant} has" if tenant else "there are"
            message = f"{whose} {self.shares.holds(tenant)} requests in flight. End some, or try again in a moment"
            return Refusal(429, Word.EXHAUSTED, message, retry_after=1)
        self.shares.take(tenant)
        self._charged[id(request)] = request, tenant
        return None

    def end(self, request: Request) -> None:
        found = self._charged.pop(id(request), None)
        if found is not None:
            self.shares.take(found[1], -1)
