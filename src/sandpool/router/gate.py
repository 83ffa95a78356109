"""The gate of the router: who asks, for which sandbox, and whether they may. Implements `values.Gate`.

    gate = RouterGate(
        directory=Directory(sandboxes_cache, clock),            # router/lookup.py
        prover=Prover(Callers(authority, clock), signer, clock),  # router/proof.py; signer: tokens.Signer([32 bytes or more])
        reach=reach, signer=signer, clock=clock, options=GateOptions(loopback=True),
        seen=Seen(RouterMetrics(registry), directory.holds, clock, Activity(api, clock), AuditLog(path, clock)),
    )
Run `activity.run()` beside the server. The order is: foreign Host or Origin, the router's own paths, who, which sandbox, may they, is it there.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from sandpool.base.clock import Clock
from sandpool.model.metadata import Key
from sandpool.model.sandbox import Sandbox
from sandpool.router import directory as standing
from sandpool.router.accounts import Accounts
from sandpool.router.addressed import Addressed, addressed, for_daemon, mistaken, names_sandbox
from sandpool.router.guard import Allowed, foreign, forwarded, well_formed
from sandpool.router.issue import LONGEST_BODY, granted, read_wish, told
from sandpool.router.lookup import Directory
from sandpool.router.ports import Caller, NoAnswer, Reach, Target
from sandpool.router.proof import Proof, Prover
from sandpool.router.refusals import Refusal, Word, denied, invalid
from sandpool.router.seen import Seen
from sandpool.router.tokens import Signer
from sandpool.router.values import Admitted, Answer, Outcome, Peer, Request
from sandpool.wire.headers import DEFAULT_PORT, ROUTING
from sandpool.wire.paths import PORT_URL, ROUTER_HEALTH, TOKENS

DAEMON_PORTS = frozenset({DEFAULT_PORT, 8080})
"""Where clients of the contract expect a runtime: boxd answers there, unless somebody else listens."""
_DROPPED = frozenset(name.encode() for name in ROUTING) | {b"x-forwarded-prefix"}
_REFERER = b"referer"
_ORIGIN = b"origin"
Body = Callable[[int], Awaitable[bytes]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GateOptions:
    loopback: bool = False  # it listens on this machine alone, so pages in browsers could reach it
    allowed: Allowed = field(default_factory=Allowed)
    near: Caller | None = None  # whom a connection proves that a kubelet has forwarded; None: nobody
    url: str = ""  # how clients reach the router; empty: as the request says
    requests: int = 4096  # under way at once, of all tenants, who share them; an administrator has as many again
    longest: float = 3600.0  # seconds that X-Sandbox-Timeout may ask for
    daemon_port: int | None = None  # where boxd listens for everybody in a sandbox: no token for a port leads there


class TurnedAway(Exception):  # it is an answer, not an accident
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


@dataclass(slots=True)
class _Case:
    """One request, and what has been found out about it so far."""

    request: Request
    peer: Peer
    caller: str = ""
    about: Key | None = None


class RouterGate:
    def __init__(
        self,
        directory: Directory,
        prover: Prover,
        reach: Reach,
        signer: Signer,
        clock: Clock,
        seen: Seen,
        options: GateOptions = GateOptions(),
    ) -> None:
        self._directory = directory
        self._prover = prover
        self._reach = reach
        self._signer = signer
        self._clock = clock
        self._seen = seen
        self._options = options
        self._accounts = Accounts(options.requests)
        self.shares = self._accounts.shares

    async def admit(self, request: Request, peer: Peer, body: Body) -> Admitted | Answer:
        case = _Case(request, peer)
        self._seen.begun(request)
        try:
            decided = await self._decide(case, body)
        except TurnedAway as turned:
            decided = turned.refusal.answer(case.caller, case.about)
        self._seen.decided(decided)
        return decided

    def finished(self, request: Request, peer: Peer, decided: Admitted | Answer, outcome: Outcome) -> None:
        self._accounts.end(request)
        self._seen.finished(request, peer, decided, outcome)

    async def _decide(self, case: _Case, body: Body) -> Admitted | Answer:
        request, peer = case.request, case.peer
        near = peer.proved or (self._options.near if forwarded(peer.address) else None)
        if self._options.loopback or near is not None:
            _pass(foreign(request, self._options.allowed, secure=peer.secure))
        if not request.path.startswith(b"/"):
            raise TurnedAway(invalid("", "the target of a request must be a path"))
        if not names_sandbox(request):
            path = request.path.partition(b"?")[0]
            if path == ROUTER_HEALTH.encode():
                return Answer(200, {"status": "ok"})
            if path == TOKENS.encode():
                return await self._issue(case, near, body)
            if path.startswith(f"{PORT_URL}/".encode()):
                return await self._by_address(case)
        proof = self._known(case, await self._prover.prove(request, near))
        wanted = _good(addressed(request))
        case.about = wanted.key
        _pass(await self._prover.may(proof, wanted))
        return await self._let_in(case, proof, wanted, request.path, _DROPPED)

    def _known(self, case: _Case, found: Proof | Refusal) -> Proof:
        """Who asks, on whose account the request is from now on."""
        proof = _good(found)
        case.caller = proof.name
        _pass(self._accounts.begin(case.request, proof.tenant))
        return proof

    async def _by_address(self, case: _Case) -> Admitted | Answer:
        """/port/TOKEN/PATH. The token is all that counts: whoever has the address may use that port, and nothing else."""
        _, _, rest = case.request.path.partition(f"{PORT_URL}/".encode())
        cut = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
        token, path = rest[:cut], rest[cut:]
        proof = self._known(case, self._prover.scoped(token.decode("latin-1")))
        scope = proof.scope
        assert scope is not None
        case.about = Key(scope.namespace, scope.name)
        if scope.port is None:
            raise TurnedAway(denied("the token names no port, so it cannot be part of an address. Send it as a header"))
        prefix = f"{PORT_URL}/".encode() + token
        if not path.startswith(b"/"):  # relative links of the page would lead elsewhere
            return Answer(308, {}, ((b"location", prefix + b"/" + path),), case.caller, case.about)
        wanted = Addressed(case.about, scope.port, scope.uid)
        return await self._let_in(case, proof, wanted, path, _DROPPED | _confided(case.request), prefix)

    async def _let_in(
        self, case: _Case, proof: Proof, wanted: Addressed, path: bytes, dropped: frozenset[bytes], prefix: bytes = b""
    ) -> Admitted:
        scope = proof.scope
        only = scope.port if scope is not None else None
        if only is not None and only == self._options.daemon_port:
            raise TurnedAway(denied(f"port {only} is boxd's: a token for a port does not open it"))
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
            found = standing.find(sandbox, wanted.key, uid, self._clock.now())
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
            refusal = Refusal(405, Word.METHOD, f"{TOKENS} answers POST alone")
            return Answer(405, refusal.answer().body, ((b"allow", b"POST"),))
        if not self._signer.able:
            message = "this router has no key to sign tokens with. Whoever runs it gives it one: --token-key-file"
            raise TurnedAway(Refusal(501, Word.UNABLE, message))
        proof = self._known(case, await self._prover.prove(request, near))
        wish = _good(read_wish(await body(LONGEST_BODY + 1)))
        case.about = wish.key
        _pass(await self._prover.may(proof, Addressed(wish.key, wish.port, wish.uid)))
        scope = proof.scope
        if scope is not None and scope.port is not None:
            raise TurnedAway(denied("a token for a port makes no other tokens"))
        if wish.port is not None and wish.port == self._options.daemon_port:
            message = f"port {wish.port} is boxd's: an address for it would let whoever has it run programs"
            raise TurnedAway(denied(f"{message}. Ask for a token without a port"))
        now = self._clock.now()
        meant = wish.uid or (scope.uid if scope is not None else "")

        def judge(sandbox: Sandbox | None) -> Sandbox | Refusal:
            refusal = standing.unidentified(sandbox, wish.key, meant, now)
            return refusal or sandbox or denied("")

        sandbox = _good(await self._directory.judged(wish.key, judge))
        made = granted(wish, sandbox.metadata.uid, now, scope.expires if scope is not None else None)
        words = told(self._signer.sign(made), made, self._base(case))
        return Answer(201, words, ((b"cache-control", b"no-store"),), case.caller, case.about)

    def _base(self, case: _Case) -> str:
        if self._options.url:
            return self._options.url.rstrip("/")
        host = (case.request.header(b"host") or b"").decode("latin-1")
        if not well_formed(host):
            raise TurnedAway(invalid("", "the request has no Host that could be part of an address"))
        return f"{'https' if case.peer.secure else 'http'}://{host}"


def _good(found: T | Refusal) -> T:
    if isinstance(found, Refusal):
        raise TurnedAway(found)
    return found


def _pass(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise TurnedAway(refusal)


def _confided(request: Request) -> frozenset[bytes]:
    """What a browser says about where it comes from. The address of another sandbox's page is a key to it. The origin is the
    router's, never the sandbox's: an app that compares it with its Host would refuse its own pages, and the token has proved more."""
    tells_a_key = f"{PORT_URL}/".encode() in (request.header(_REFERER) or b"")
    return frozenset({_ORIGIN, _REFERER}) if tells_a_key else frozenset({_ORIGIN})
