"""Metrics of sandboxes: how many there are by label values, how long each took to become Ready, and who was handed one.

Counts are kept event by event; a scrape reads these counts, not the sandboxes. A sandbox's template counts as a label only
where a pool of its namespace names the same one (names.py); that is decided at the scrape, because pools may come later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sandpool.base.clock import Clock
from sandpool.controllers.metrics.names import Names, tally
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
from sandpool.telemetry.metrics import Metrics, Series

NO_TEMPLATE = "unknown"  # the value that the contract uses
OWNERS = (SandboxClaim.kind, SandboxWarmPool.kind)
_OF_GROUP = f"{GROUP}/"  # of any version


class LabelValues(NamedTuple):
    """The label values that sandboxes are counted by."""

    namespace: str
    ready: bool
    expired: bool
    launch: str
    template: str  # as its annotation says
    owner: str
    creator: str
    state: str


def launch_type(sandbox: Sandbox) -> str:
    """By the label alone; without one the sandbox was not taken from a pool."""
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


def label_values(sandbox: Sandbox) -> LabelValues:
    meta = sandbox.metadata
    condition = find(sandbox.status.conditions, Type.READY)
    ready = condition is not None and condition.true
    expired = condition is not None and condition.reason == Reason.SANDBOX_EXPIRED
    owner = owner_of(sandbox)
    return LabelValues(
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


class SandboxMetrics:
    """Counts sandboxes by label values and times their starts."""

    def __init__(self, clock: Clock, metrics: Metrics, series: Series) -> None:
        self._clock = clock
        self._series = series
        self._seconds = metrics.creation
        self._counts: dict[LabelValues, int] = {}
        self._namespaces: dict[str, int] = {}
        self._since: dict[Uid, float] = {}  # sandboxes that have not been Ready yet, and when they were first seen

    def __len__(self) -> int:
        """How many sandboxes are being timed."""
        return len(self._since)

    def lives(self, namespace: str) -> bool:
        return namespace in self._namespaces

    def step(self, old: Sandbox | None, new: Sandbox | None) -> tuple[LabelValues | None, LabelValues | None]:
        """Counts a change; returns the label values before and after."""
        before, after = None if old is None else label_values(old), None if new is None else label_values(new)
        if before == after:
            return before, after
        if after is not None:
            self._counts[after] = self._counts.get(after, 0) + 1
        if before is not None:
            tally(self._counts, before, -1)
        if old is None and new is not None:
            tally(self._namespaces, new.metadata.namespace, 1)
        elif new is None and old is not None:
            tally(self._namespaces, old.metadata.namespace, -1)
        return before, after

    def begin(self, sandbox: Sandbox, values: LabelValues) -> None:
        """Starts timing a new sandbox."""
        if not values.ready:
            self._since[sandbox.metadata.uid] = self._clock.monotonic()

    def follow(self, sandbox: Sandbox, values: LabelValues, names: Names, counted: bool) -> None:
        """Observes the time of a start. A sandbox that is suspended before it was ever Ready is not timed."""
        uid = sandbox.metadata.uid
        if uid not in self._since:
            return
        if values.ready:
            seconds = self._clock.monotonic() - self._since.pop(uid)
            if counted:
                where = names.namespace(sandbox.metadata.namespace)
                template = names.template_named(values.namespace, values.template, NO_TEMPLATE)
                self._series.of(self._seconds, where, values.launch, template).observe(seconds * 1e3)
        elif sandbox.spec.suspended:
            del self._since[uid]

    def end(self, sandbox: Sandbox) -> None:
        self._since.pop(sandbox.metadata.uid, None)

    def read(self, names: Names) -> Iterator[tuple[Family, Mapping[tuple[str, ...], float]]]:
        states: dict[tuple[str, ...], float] = {}
        contract: dict[tuple[str, ...], float] = {}
        for values, count in self._counts.items():
            where = names.namespace(values.namespace)
            template = names.template_named(values.namespace, values.template, NO_TEMPLATE)
            states[where, values.state] = states.get((where, values.state), 0) + count
            line = (
                where,
                _word(values.ready),
                _word(values.expired),
                values.launch,
                template,
                values.owner,
                values.creator,
            )
            contract[line] = contract.get(line, 0) + count
        yield families.SANDBOXES, states
        yield families.CONTRACT_SANDBOXES, contract


def _word(value: bool) -> str:
    return "true" if value else "false"
