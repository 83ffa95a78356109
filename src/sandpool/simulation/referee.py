"""The referee of a run: checks every step and every call of its leaders against the invariants, and the end state at the end."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sandpool.base.errors import SandpoolError
from sandpool.model.claim import SandboxClaim
from sandpool.model.metadata import Key, Revision, Uid
from sandpool.model.pod import Pod
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.resource import Resource
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate
from sandpool.simulation.invariants import knowledge
from sandpool.simulation.invariants.knowledge import Knowledge
from sandpool.simulation.invariants.ledger import Ledger
from sandpool.simulation.invariants.liveness import Outcome, account
from sandpool.simulation.invariants.order import Order, Waits
from sandpool.simulation.invariants.population import within_limits
from sandpool.simulation.invariants.readiness import truthful
from sandpool.simulation.invariants.safety import JUDGES
from sandpool.simulation.report import Entry, Remark, described, names_in, report_of
from sandpool.simulation.steps import COLLECTOR, USER, Author, Step
from sandpool.simulation.world import World

if TYPE_CHECKING:
    from sandpool.simulation.leader import Leader

_OTHERS = ("Service", "PersistentVolumeClaim", "NetworkPolicy")
_FREEING = (USER, COLLECTOR)
"""Authors that may leave a sandbox without an owner: users, and the garbage collector that orphans on their behalf."""
_MOST_WRITES = 2_000
"""Writes of the controllers in one run: several times what an eventful one takes. More means a fight or a loop."""
_REST = 100.0
"""Seconds before the end in which a world that has come to rest sees no write of a controller."""


class Referee:
    """Collects steps, remarks and violations of one run."""

    def __init__(self, world: World) -> None:
        self.violations: list[str] = []
        self._world = world
        self._ledger = Ledger()
        self._entries: list[Entry] = []
        self._leaders: list[Leader] = []
        self._known: dict[str, Knowledge] = {}
        self._began: dict[str, Revision] = {}
        self._free: dict[Uid, None] = {}
        self._waits: Waits | None = None
        world.listeners.append(self._step)

    # While it runs

    def follow(self, leader: Leader) -> None:
        """A leader begins."""
        self._leaders.append(leader)
        self._known[leader.name] = knowledge.follow(leader, self._world.clock.monotonic)
        self._began[leader.name] = self._world.store.revision
        Order(leader, self._world.clock.monotonic, self.violated)
        self.remark(f"{leader.name} begins")

    def asked(self, leader: Leader, who: Author, verb: str, resource: Resource[Any], name: str, namespace: str) -> None:
        known = self._known[leader.name]
        knowledge.note(leader, known, who, verb, resource, name, namespace)
        if forgotten := knowledge.forgotten(known, who):
            self.violated(forgotten)

    def answered(self, leader: Leader, who: Author, verb: str, answer: object) -> None:
        knowledge.answered(self._known[leader.name], who, verb, answer)

    def remark(self, text: str) -> None:
        self._entries.append(Remark(self._now(), text))

    def _now(self) -> float:
        """Outside the run: its last moment."""
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return self._entries[-1].at if self._entries else 0.0

    def violated(self, what: str) -> None:
        self.violations.append(f"t={self._now():.4f} {what}")
        self.remark(f"VIOLATION {what}")

    def _step(self, step: Step) -> None:
        self._entries.append(step)
        for judge in JUDGES:
            for what in judge(self._ledger, step):
                self.violated(what)
        for what in within_limits(self._ledger, step, self._known, self._began):
            self.violated(what)
        for what in truthful(self._ledger, step):
            self.violated(what)
        for what in self._waits.step(step) if self._waits is not None else ():
            self.violated(what)
        self._ledger.enter(step)
        if isinstance(step.new, Sandbox) and step.new.metadata.controller is None and step.author.name in _FREEING:
            self._free[step.new.metadata.uid] = None

    def calm(self) -> None:
        """Faults are off, and pods start: from now on every wait must end."""
        self._waits = Waits(self._world.of(SandboxClaim.kind))

    # In the end

    def close(self, repairs: Callable[[], float]) -> None:
        """The final check. `repairs`: how many repairs audits have made."""
        for what in account(self._outcome()):
            self.violated(what)
        self._check_rest()
        self._check_assigner()
        if found := repairs():
            self.violated(f"audit: {found:g} repairs of what the assigner remembers")

    def _check_rest(self) -> None:
        written = [line for line in self._entries if isinstance(line, Step) and line.author.controller]
        if len(written) > _MOST_WRITES:
            self.violated(f"rest: {len(written)} writes of controllers; the last: {described(written[-1]).strip()}")
        if written and written[-1].at > self._now() - _REST:
            self.violated(f"rest: controllers still write: {described(written[-1]).strip()}")

    def _check_assigner(self) -> None:
        """The assigner agrees with the caches, nothing is reserved, and only claims without a sandbox wait."""
        controllers = self._leaders[-1].controllers
        controllers.claim.audit()
        empty = Counter(
            (claim.metadata.namespace, claim.spec.warm_pool_ref.name)
            for claim in self._world.of(SandboxClaim.kind)
            if claim.status.sandbox is None
        )
        for pool in self._world.of(SandboxWarmPool.kind):
            counts = controllers.assigner.counts(pool.metadata.uid)
            if counts.reserved or counts.waiting > empty[pool.metadata.key]:
                self.violated(f"audit: pool {pool.metadata.key} still has {counts} in the end")

    def _outcome(self) -> Outcome:
        world = self._world
        kinds: dict[str, dict[Key, Any]] = {}
        for obj in world.current.values():
            kinds.setdefault(obj.kind, {})[obj.metadata.key] = obj
        return Outcome(
            now=world.clock.now(),
            claims=kinds.get(SandboxClaim.kind, {}),
            sandboxes=kinds.get(Sandbox.kind, {}),
            pools=kinds.get(SandboxWarmPool.kind, {}),
            templates=kinds.get(SandboxTemplate.kind, {}),
            pods=kinds.get(Pod.kind, {}),
            others=[obj for kind in _OTHERS for obj in kinds.get(kind, {}).values()],
            uids={obj.metadata.uid for obj in world.current.values()},
            free=set(self._free),
        )

    def trace(self) -> str:
        return "".join(f"{described(line)}\n" for line in self._entries)

    def report(self) -> str:
        return report_of(self.violations, self._entries, self._controller_histories())

    def _controller_histories(self) -> list[str]:
        found = []
        for name in dict.fromkeys(name for violation in self.violations[:3] for name in names_in(violation)):
            namespace, _, bare = name.partition("/")
            for leader in self._leaders:
                for controller in ("claim", "pool", "sandbox", "template"):
                    entries = leader.history.of((controller, Key(namespace, bare)))[-8:]
                    found += [(entry.when, f"{leader.name} {name} {entry}") for entry in entries]
        return [text for _, text in sorted(found, key=lambda pair: pair[0])]


class Unforeseen(logging.Handler):
    """Reads the log of the controllers: an error that is not an API error is a bug."""

    def __init__(self, referee: Referee) -> None:
        super().__init__(logging.ERROR)
        self._referee = referee

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        for leaf in _leaves(error):
            if not isinstance(
                leaf, (SandpoolError, TimeoutError, asyncio.CancelledError)
            ):  # CancelledError: it was killed
                keys = getattr(record, "keys", {})
                self._referee.violated(
                    f"unforeseen: {keys.get('controller')} {keys.get('key')}: {type(leaf).__name__}: {leaf}"
                )


def _leaves(error: BaseException | None) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [] if error is None else [error]
