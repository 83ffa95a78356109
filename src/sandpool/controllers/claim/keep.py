"""Maintains a bound claim: forwards its sandbox's status, repairs the sandbox's metadata, deletes surplus sandboxes.

Repairs (`upkeep`, pure) add labels that old versions did not write and apply edits of the claim's pod metadata. They start from the sandbox as
it was made; its template only shows which keys the template owns. A running sandbox never follows its pool to another template: it keeps the
spec that it was made with and stays behind that template's NetworkPolicy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sandpool.base.clock import Clock
from sandpool.base.errors import SandpoolError
from sandpool.controllers.claim import pod_metadata
from sandpool.controllers.claim.annotations import annotations_patch
from sandpool.controllers.claim.expire import delete_sandboxes
from sandpool.controllers.claim.handover import Handover
from sandpool.controllers.claim.memory import Memory
from sandpool.controllers.claim.observe import Observer
from sandpool.controllers.claim.options import Options
from sandpool.controllers.claim.publish import Publisher, TimeSlots
from sandpool.controllers.claim.status import as_of_before, forwarded, same
from sandpool.controllers.claim.view import ClaimView, bound_name, warm
from sandpool.kube.errors import Conflict, NotFound, TooManyRequests
from sandpool.loop.errors import Terminal
from sandpool.loop.outcome import Done
from sandpool.loop.writes import Writes
from sandpool.model import labels
from sandpool.model.claim import SandboxClaim, SandboxClaimStatus
from sandpool.model.conditions import find, is_true
from sandpool.model.expiry import claim_end
from sandpool.model.kinds import SANDBOXES
from sandpool.model.labels import CLAIM_FIRST_READY_AT, LaunchType
from sandpool.model.names import name_hash
from sandpool.model.patches import Patch, merge_patch
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import PodMetadata, Sandbox
from sandpool.model.template import SandboxTemplate

Trouble = tuple[Reason, str]
SURPLUS_PER_SECOND = 20.0
"""Surplus sandboxes that are deleted per second: deletes compete with writes that claims wait for."""


class Keeper:
    """Maintains bound claims."""

    def __init__(
        self,
        writes: Writes,
        observer: Observer,
        memory: Memory,
        handover: Handover,
        publisher: Publisher,
        clock: Clock,
        options: Options,
    ) -> None:
        self._writes = writes
        self._observer = observer
        self._memory = memory
        self._handover = handover
        self._publisher = publisher
        self._clock = clock
        self._options = options
        self._surplus_slots = TimeSlots(SURPLUS_PER_SECOND)

    async def keep(self, view: ClaimView, seen: Sandbox) -> Done | None:
        self._memory.of(view.claim).waits_since = None
        sandbox = await self._confirmed(view.claim, seen)
        if sandbox is None:
            return Done()  # its DELETED event will wake the claim
        trouble, failure = await self._put_right(view.claim, sandbox)
        status = forwarded(view.claim, sandbox, self._clock.now(), trouble)
        if failure is not None:
            status = as_of_before(status, view.claim)
        becomes_ready = is_true(status.conditions, Type.READY) and not is_true(view.claim.status.conditions, Type.READY)
        if becomes_ready:  # clients expect the annotations when the claim is Ready
            await self._handover.name(view.claim, sandbox.metadata.name)
        first = becomes_ready and self._first(view.claim)
        published, annotated = await self._publish(view.claim, sandbox, status, first=first)
        if failure is not None:
            raise failure
        if published is None:
            return Done()
        if first:
            return Done(afterwards=True)
        again = None if annotated else self._options.annotate_again
        if view.surplus and (pause := self._pause(view.claim)) > 0:
            again = pause if again is None else min(again, pause)
        elif view.surplus:
            await self._delete_surplus(view)
        return Done(again_at=claim_end(published), again_after=again)

    def _pause(self, claim: SandboxClaim) -> float:
        """Seconds until the claim's surplus sandbox may be deleted. The claim keeps its time slot until it is used."""
        notes, now = self._memory.of(claim), self._clock.monotonic()
        notes.tidy_at = notes.tidy_at or self._surplus_slots.take(now)
        if notes.tidy_at > now:
            return notes.tidy_at - now
        notes.tidy_at = None
        return 0.0

    async def _confirmed(self, claim: SandboxClaim, sandbox: Sandbox) -> Sandbox | None:
        """The sandbox, read from the server if another writer has published the claim as Ready and our cache says otherwise: only the server
        knows which is right. None: the sandbox is gone."""
        published = self._memory.of(claim).published
        ours = published is not None and same(published, claim.status)
        says, is_so = (is_true(one.status.conditions, Type.READY) for one in (claim, sandbox))
        if ours or is_so or not says:
            return sandbox
        meta = sandbox.metadata
        try:
            found = await self._writes.get(SANDBOXES, meta.name, meta.namespace)
        except NotFound:
            return None
        return found if found.metadata.uid == meta.uid else None

    async def _put_right(self, claim: SandboxClaim, sandbox: Sandbox) -> tuple[Trouble | None, SandpoolError | None]:
        """Repairs the sandbox's metadata. Returns what to report in Healthy, and the error to retry; the claim stays Ready either way."""
        if sandbox.metadata.leaving:
            return None, None
        try:
            patch = upkeep(claim, sandbox, self._observer.origin(sandbox), self._options.label_domains)
            if patch is not None:
                await self._writes.patch(SANDBOXES, sandbox.metadata.name, patch, sandbox.metadata.namespace)
        except Terminal as refusal:
            return (Reason.CONFIGURATION_TROUBLE, refusal.message), None
        except NotFound:
            return None, None  # the watch will say so
        except SandpoolError as error:
            if isinstance(error, Conflict | TooManyRequests):
                return None, error
            text = f"could not bring the metadata of sandbox {sandbox.metadata.name} up to date: {error}"
            return (Reason.CONTROLLER_TROUBLE, text), error
        return None, None

    def _first(self, claim: SandboxClaim) -> bool:
        """Records when the claim became ready. True if the annotation of that has still to be written."""
        notes = self._memory.of(claim)
        notes.first_ready = notes.first_ready or self._clock.now()
        return self._options.annotations and CLAIM_FIRST_READY_AT not in claim.metadata.annotations

    async def _publish(
        self, claim: SandboxClaim, sandbox: Sandbox, status: SandboxClaimStatus, *, first: bool
    ) -> tuple[SandboxClaim | None, bool]:
        """Publishes status and annotations; returns the claim afterwards, and whether its annotations are complete. The time of the `first` readiness is
        written later, when no claim waits."""
        published = await self._publisher.publish(claim, status)
        if published is None or first or not self._options.annotations or not is_true(status.conditions, Type.READY):
            return published, True
        patch = annotations_patch(published, sandbox.metadata.name, self._memory.of(claim), self._clock.now())
        return published, patch is None or await self._publisher.annotate(claim, patch)

    async def _delete_surplus(self, view: ClaimView) -> None:
        """Deletes the surplus only if the server confirms that the claim is bound to the other sandbox."""
        found = await self._publisher.found(view.claim)
        if found is not None and bound_name(found) == view.bound_name:
            await delete_sandboxes(self._writes, view.surplus)


Delta = dict[str, str | None]


def upkeep(
    claim: SandboxClaim, sandbox: Sandbox, origin: SandboxTemplate | None, domains: Sequence[str]
) -> Patch | None:
    """The patch of the sandbox; None if nothing is to be repaired. Raises Terminal if the claim now asks for something impossible."""
    refuse_late_customisation(claim, sandbox)
    marks = missing_marks(claim, sandbox)
    additional = claim.spec.additional_pod_metadata or PodMetadata()
    pod_metadata.check(additional, domains)
    pod = _pod_delta(claim, sandbox, origin, additional, domains)
    if not marks and not pod:
        return None
    body: dict[str, Any] = {"metadata": {"uid": str(sandbox.metadata.uid), **({"labels": marks} if marks else {})}}
    if pod:
        body["spec"] = {"podTemplate": {"metadata": pod}}
    return merge_patch(body)


def refuse_late_customisation(claim: SandboxClaim, sandbox: Sandbox) -> None:
    if claim.spec.customised and warm(sandbox):
        field = "spec.env" if claim.spec.env else "spec.volumeClaimTemplates"
        raise Terminal(
            Reason.CONFIGURATION_TROUBLE,
            f"{field} was set after sandbox {sandbox.metadata.name} was handed out, which cannot have it; "
            "make another claim",
        )


def missing_marks(claim: SandboxClaim, sandbox: Sandbox) -> dict[str, str]:
    """Labels that a claim's sandbox must have; one that is there is never overwritten."""
    there, missing = sandbox.metadata.labels, {}
    if labels.LAUNCH_TYPE not in there:
        own_name = sandbox.metadata.name == claim.metadata.name
        missing[labels.LAUNCH_TYPE] = (LaunchType.COLD if own_name else LaunchType.WARM).value
    template = sandbox.metadata.annotations.get(labels.TEMPLATE_REF, "")
    if template and labels.TEMPLATE_REF_HASH not in there:
        missing[labels.TEMPLATE_REF_HASH] = name_hash(template)
    return missing


def _pod_delta(
    claim: SandboxClaim,
    sandbox: Sandbox,
    origin: SandboxTemplate | None,
    wanted: PodMetadata,
    domains: Sequence[str],
) -> dict[str, Delta]:
    present = sandbox.spec.pod_template.metadata or PodMetadata()
    base = (origin.spec.pod_template.metadata if origin is not None else None) or PodMetadata()
    ready = find(claim.status.conditions, Type.READY)
    edited = ready is not None and ready.observed_generation != claim.metadata.generation
    removing = edited and origin is not None  # without the template it is unknown who owns a key
    parts = {
        "labels": _delta("labels", present.labels, wanted.labels, base.labels),
        "annotations": _delta("annotations", present.annotations, wanted.annotations, base.annotations),
    }
    if removing:
        parts["labels"] |= {
            key: None
            for key in _dropped(present.labels, wanted.labels, base.labels)
            if pod_metadata.allowed_label(key, domains)
        }
        parts["annotations"] |= {
            key: None
            for key in _dropped(present.annotations, wanted.annotations, base.annotations)
            if pod_metadata.allowed_annotation(key)
        }
    return {field: delta for field, delta in parts.items() if delta}


def _delta(field: str, present: Mapping[str, str], wanted: Mapping[str, str], base: Mapping[str, str]) -> Delta:
    delta: Delta = {}
    for key, value in sorted(wanted.items()):
        if present.get(key) == value:
            continue
        if key in base and base[key] != value:
            raise pod_metadata.changes_template(field, key, value, base[key])
        delta[key] = value
    return delta


def _dropped(present: Mapping[str, str], wanted: Mapping[str, str], base: Mapping[str, str]) -> list[str]:
    return [key for key in sorted(present) if key not in wanted and key not in base]
