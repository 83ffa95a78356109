"""Sandboxes in numbers: how many there are of which sort, how long each took to become Ready, and who was handed one.

A census is kept step by step; a scrape reads the sorts, not the sandboxes. What a sandbox says of its template counts only
where a pool of its namespace says the same (names.py), and that is decided when it is shown: pools may come later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sandpool.base.clock import Clock
from sandpool.controllers.metrics.names import Names, tally
from sandpool.controllers.metrics.series import Series
from sandpool.model import labels
from sandpool.model.claim import SandboxClaim
from sandpool.model.conditions import find, is_true
from sandpool.model.labels import LaunchType
from sandpool.model.metadata import OwnerReference, Uid
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import GROUP
from sandpool.telemetry import families
from sandpool.telemetry.families import Family
from sandpool.telemetry.metrics import Metrics

NO_TEMPLATE = "unknown"  # the contract's word where it counts sandboxes
OWNERS = (SandboxClaim.kind, SandboxWarmPool.kind)
_OF_GROUP = f"{GROUP}/"  # of any version


class Sort(NamedTuple):
    namespace: str
    ready: bool
    expired: bool
    launch: str
    template: str  # as its annotation says
    owner: str
    creator: str
    state: str


def launch_type(sandbox: Sandbox) -> str:
    """By the label alone; what has none was not taken from a pool."""
    warm = sandbox.metadata.labels.get(labels.LAUNCH_TYPE) == LaunchType.WARM
    return "warm" if warm else "cold"


def owner_of(sandbox: Sandbox) -> OwnerReference | None:
    """The claim or pool that controls it, whatever version the reference has."""
    owners = sandbox.metadata.owner_references
    if not owners:
        return None
    owner = owners[0] if owners[0].controller else sandbox.metadata.controller  # nearly always the first
    if owner is None or owner.kind not in OWNERS or not owner.api_version.startswith(_OF_GROUP):
        return None
    return owner


def claim_of(sandbox: Sandbox | None) -> OwnerReference | None:
    owner = None if sandbox is None else owner_of(sandbox)
    return owner if owner is not None and owner.kind == SandboxClaim.kind else None


def is_ready(sandbox: Sandbox) -> bool:
    return is_true(sandbox.status.conditions, Type.READY)


def sort_of(sandbox: Sandbox) -> Sort:
    meta = sandbox.metadata
    said = find(sandbox.status.conditions, Type.READY)
    ready = said is not None and said.true
    expired = said is not None and said.reason == Reason.SANDBOX_EXPIRED
    owner = owner_of(sandbox)
    return Sort(
        meta.namespace,
        ready,
        expired,
        launch_type(sandbox),
        meta.annotations.get(labels.TEMPLATE_REF, ""),
        "None" if owner is None else owner.kind,
        str.__str__(labels.created_by(meta.labels.get(labels.CREATED_BY, ""))),
        _state(sandbox, ready, expired),
    )


def _state(sandbox: Sandbox, ready: bool, expired: bool) -> str:
    if sandbox.metadata.deletion_timestamp is not None:
        return "leaving"
    if expired:
        return "expired"
    if is_true(sandbox.status.conditions, Type.FINISHED):
        return "finished"
    if sandbox.spec.suspended:
        return "suspended"
    return "ready" if ready else "starting"


class Census:
    def __init__(self, clock: Clock, metrics: Metrics, series: Series) -> None:
        self._clock = clock
        self._series = series
        self._seconds = metrics.creation
        self._sorts: dict[Sort, int] = {}
        self._namespaces: dict[str, int] = {}
        self._since: dict[Uid, float] = {}  # sandboxes that have not been Ready yet, and when they were first seen

    def __len__(self) -> int:
        """How many sandboxes are being timed."""
        return len(self._since)

    def lives(self, namespace: str) -> bool:
        return namespace in self._namespaces

    def step(self, old: Sandbox | None, new: Sandbox | None) -> tuple[Sort | None, Sort | None]:
        """The answer is what it was and what it is."""
        before, after = None if old is None else sort_of(old), None if new is None else sort_of(new)
        if before == after:
            return before, after
        if after is not None:
            self._sorts[after] = self._sorts.get(after, 0) + 1
        if before is not None:
            tally(self._sorts, before, -1)
        if old is None and new is not None:
            tally(self._namespaces, new.metadata.namespace, 1)
        elif new is None and old is not None:
            tally(self._namespaces, old.metadata.namespace, -1)
        return before, after

    def begin(self, sandbox: Sandbox, sort: Sort) -> None:
        """It is new: from now on it is timed."""
        if not sort.ready:
            self._since[sandbox.metadata.uid] = self._clock.monotonic()

    def follow(self, sandbox: Sandbox, sort: Sort, names: Names, counted: bool) -> None:
        """It has changed. One that is suspended before it was ever Ready says nothing about how long a start takes."""
        uid = sandbox.metadata.uid
        if uid not in self._since:
            return
        if sort.ready:
            seconds = self._clock.monotonic() - self._since.pop(uid)
            if counted:
                where = names.namespace(sandbox.metadata.namespace)
                template = names.template_named(sort.namespace, sort.template, NO_TEMPLATE)
                self._series.of(self._seconds, where, sort.launch, template).observe(seconds * 1e3)
        elif sandbox.spec.suspended:
            del self._since[uid]

    def end(self, sandbox: Sandbox) -> None:
        self._since.pop(sandbox.metadata.uid, None)

    def read(self, names: Names) -> Iterator[tuple[Family, Mapping[tuple[str, ...], float]]]:
        states: dict[tuple[str, ...], float] = {}
        contract: dict[tuple[str, ...], float] = {}
        for sort, count in self._sorts.items():
            where = names.namespace(sort.namespace)
            template = names.template_named(sort.namespace, sort.template, NO_TEMPLATE)
            states[where, sort.state] = states.get((where, sort.state), 0) + count
            line = (where, _word(sort.ready), _word(sort.expired), sort.launch, template, sort.owner, sort.creator)
            contract[line] = contract.get(line, 0) + count
        yield families.SANDBOXES, states
        yield families.CONTRACT_SANDBOXES, contract


def _word(value: bool) -> str:
    return "true" if value else "false"
