"""What a sandbox's status should say, the smallest patch for it, and which changes are worth an Event. Pure.

Ready is a fact about the pod, its address and its Service: a controller error never sets it to False. Errors are reported in the
condition Healthy (False while there is one, absent otherwise) and, if Ready is False anyway, as the reason of Ready. What keeps a
pod from starting is reported in Healthy too, so that it can be told from a start that is merely slow.

Messages that begin with "Pod" or "Sandbox", without an article, are those of other implementations: clients compare them
(docs/reference/compatibility.md), so they do not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from sandpool.controllers.sandbox.options import Options
from sandpool.controllers.sandbox.pod import outdated
from sandpool.controllers.sandbox.view import Holding, SandboxView, holding
from sandpool.loop.events import Kind
from sandpool.model.conditions import Condition, Truth, find, is_true, put, without
from sandpool.model.event_reasons import EventReason
from sandpool.model.labels import sandbox_selector
from sandpool.model.patches import Json, Patch, json_patch
from sandpool.model.pod import Phase, Pod
from sandpool.model.reasons import Reason, Type
from sandpool.model.sandbox import Sandbox, SandboxStatus

OURS = (Type.SUSPENDED, Type.FINISHED, Type.POD_SCHEDULED, Type.READY, Type.HEALTHY, Type.POD_UP_TO_DATE)
"""Our conditions, in the order in which they are first written."""
_UNTOLD = SandboxStatus()
_FINAL = frozenset({Reason.SANDBOX_EXPIRED, Reason.POD_SUCCEEDED, Reason.POD_FAILED})
_TRUTHS = {truth.value: truth for truth in Truth}


@dataclass(frozen=True, slots=True)
class Trouble:
    """What went wrong. `refused` waits for a user to change something, `failed` is retried."""

    refused: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    pod_unknown: bool = False  # the outcome of a pod's create is unknown

    @property
    def text(self) -> str:
        return "; ".join((*self.refused, *self.failed))


NO_TROUBLE = Trouble()


class Verdict(NamedTuple):
    """Status, reason and message of one condition."""

    status: Truth
    reason: str
    message: str


def status_of(view: SandboxView, trouble: Trouble, options: Options, now: datetime) -> SandboxStatus:
    """The status of a sandbox that has not expired."""
    sandbox, pod = view.sandbox, view.own_pod
    finished = _finished(view, pod)
    ready = _ready(view, finished, trouble)
    verdicts = {
        Type.SUSPENDED: _suspended(view, trouble),
        Type.FINISHED: finished,
        Type.POD_SCHEDULED: _scheduled(pod, trouble),
        Type.READY: ready,
        Type.HEALTHY: _healthy(trouble) or (None if ready.status is Truth.TRUE else _held_up(view, finished)),
        Type.POD_UP_TO_DATE: _up_to_date(view, pod),
    }
    service = view.own_service if sandbox.spec.service is not False else None
    name = service.metadata.name if service is not None else ""
    there = pod is not None and not view.departing(pod)
    return SandboxStatus(
        conditions=_conditions(sandbox, verdicts, now),
        service=name,
        service_fqdn=f"{name}.{sandbox.metadata.namespace}.svc.{options.cluster_domain}" if name else "",
        selector=sandbox_selector(sandbox.metadata.name) if view.pod is not None else sandbox.status.selector,
        pod_ips=pod.ips if pod is not None and there else (),
        node_name=pod.spec.node_name if pod is not None and there else "",
    )


def expired_status(sandbox: Sandbox, trouble: Trouble, now: datetime) -> SandboxStatus:
    """Only conditions are left. Finished and Suspended stay as they were."""
    verdicts = {
        Type.POD_SCHEDULED: None,
        Type.READY: Verdict(Truth.FALSE, Reason.SANDBOX_EXPIRED, "Sandbox has expired"),
        Type.HEALTHY: _healthy(trouble),
        Type.POD_UP_TO_DATE: None,
    }
    return SandboxStatus(conditions=_conditions(sandbox, verdicts, now))


def status_patch(sandbox: Sandbox, new: SandboxStatus) -> Patch | None:
    """The changed fields, for this uid only; None if nothing differs. Nobody else writes this status."""
    if new == sandbox.status:
        return None
    test = {"op": "test", "path": "/metadata/uid", "value": sandbox.metadata.uid}
    if sandbox.status == _UNTOLD:  # there may be no status at all yet
        return json_patch([test, {"op": "add", "path": "/status", "value": _fields(new)}])
    return json_patch([test, *_operations(_fields(sandbox.status), _fields(new))])


def urgent(old: SandboxStatus, new: SandboxStatus) -> bool:
    """Whether a user waits for the change. Other changes can wait a moment and share one write."""
    return _awaited(old) != _awaited(new)


def beginning(view: SandboxView, new: SandboxStatus) -> bool:
    """Nothing is published yet, and there is nothing to report but that it starts."""
    scheduled, healthy = find(new.conditions, Type.POD_SCHEDULED), find(new.conditions, Type.HEALTHY)
    stuck = (scheduled is not None and scheduled.status == Truth.FALSE) or healthy is not None
    held_up = view.own_pod is not None and view.own_pod.held_up != ""
    return not view.sandbox.status.conditions and not stuck and not held_up


def unborn(view: SandboxView, trouble: Trouble) -> bool:
    """Likewise, judged by the pod alone, which is not running yet: the status need not even be computed."""
    pod = view.own_pod
    if pod is None or trouble is not NO_TROUBLE or view.sandbox.status.conditions or view.departing(pod):
        return False
    scheduled = pod.condition(Type.POD_SCHEDULED)
    stuck = (scheduled is not None and scheduled.status == Truth.FALSE) or pod.held_up != ""
    return pod.status.phase in ("", Phase.PENDING) and not stuck


def _awaited(status: SandboxStatus) -> tuple[object, ...]:
    known = {condition.type: condition for condition in status.conditions}
    ready, suspended, healthy = known.get(Type.READY), known.get(Type.SUSPENDED), known.get(Type.HEALTHY)
    return (
        msgspec.structs.replace(status, conditions=()) if ready is not None and ready.true else None,
        ready.reason if ready is not None and ready.reason in _FINAL else "",
        suspended is not None and suspended.true,
        healthy is not None and healthy.reason == Reason.CONFIGURATION_TROUBLE,
    )


def _fields(status: SandboxStatus) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(status))
    return {name: value for name, value in fields.items() if value}


def _operations(old: dict[str, Any], new: dict[str, Any]) -> Iterator[dict[str, Json]]:
    for name in old:
        if name not in new:
            yield {"op": "remove", "path": f"/status/{name}"}
    for name, value in new.items():
        if old.get(name) != value:
            yield {"op": "add", "path": f"/status/{name}", "value": value}


def _conditions(sandbox: Sandbox, verdicts: dict[Type, Verdict | None], now: datetime) -> tuple[Condition, ...]:
    conditions, generation = sandbox.status.conditions, sandbox.metadata.generation
    known = {condition.type: condition for condition in conditions}
    for type_ in OURS:
        if type_ not in verdicts:
            continue
        verdict, said = verdicts[type_], known.get(type_)
        if verdict is None:
            conditions = conditions if said is None else without(conditions, type_)
        elif said is None or not _says(said, verdict, generation):
            conditions = put(conditions, type_, *verdict, generation=generation, now=now)
    return conditions


def _says(said: Condition, verdict: Verdict, generation: int) -> bool:
    """Whether the condition already says this, with a transition time."""
    shown = said.status, said.reason, said.message, said.observed_generation
    return shown == (*verdict, generation) and said.last_transition_time is not None


def _suspended(view: SandboxView, trouble: Trouble) -> Verdict:
    if not view.sandbox.spec.suspended:
        return Verdict(Truth.FALSE, Reason.NOT_SUSPENDED, "Sandbox is not suspended")
    if view.owned:
        return Verdict(Truth.FALSE, Reason.POD_TERMINATING, "Pod is terminating. Sandbox is suspending")
    if trouble.pod_unknown and view.pod is None:
        return Verdict(Truth.UNKNOWN, Reason.POD_STATE_UNKNOWN, "It is not known whether a pod is there")
    if view.pod is not None:
        message = "Refused to delete pod because it is not owned by this sandbox"
        return Verdict(Truth.FALSE, Reason.POD_NOT_OWNED, message)
    return Verdict(Truth.TRUE, Reason.POD_TERMINATED, "Pod has been terminated. Sandbox is suspended")


def _finished(view: SandboxView, pod: Pod | None) -> Verdict | None:
    if pod is None:
        return None
    if view.departing(pod):
        # For a deleted pod the kubelet also reports how its containers ended. That does not mean that the work finished.
        known = find(view.sandbox.status.conditions, Type.FINISHED)
        return Verdict(Truth.TRUE, known.reason, known.message) if known is not None and known.true else None
    match pod.status.phase:
        case Phase.SUCCEEDED:
            return Verdict(Truth.TRUE, Reason.POD_SUCCEEDED, "The pod completed successfully")
        case Phase.FAILED:
            said = ": ".join(filter(None, (pod.status.reason, pod.status.message)))
            ending = f"The pod failed ({said})" if said else "The pod failed"
            return Verdict(Truth.TRUE, Reason.POD_FAILED, f"{ending}; it is kept: delete it to get a new one")
    return None


def _up_to_date(view: SandboxView, pod: Pod | None) -> Verdict | None:
    if pod is None or view.departing(pod) or not outdated(view.sandbox, pod):
        return None
    message = (
        f"spec.podTemplate.spec changed after Pod {pod.metadata.name} was made; "
        "the change reaches the next pod: delete this one, or suspend and resume the sandbox"
    )
    return Verdict(Truth.FALSE, Reason.POD_OUTDATED, message)


def _scheduled(pod: Pod | None, trouble: Trouble) -> Verdict | None:
    if pod is None:
        unknown = Verdict(Truth.UNKNOWN, Reason.POD_SCHEDULING_UNKNOWN, "It is not known whether a pod is there")
        return unknown if trouble.pod_unknown else None
    said = pod.condition(Type.POD_SCHEDULED)
    if said is None:
        return Verdict(Truth.UNKNOWN, Reason.POD_SCHEDULING_UNKNOWN, "The scheduler has not reported about the pod yet")
    status = _TRUTHS.get(said.status, Truth.UNKNOWN)
    fallback = Reason.POD_SCHEDULED if status is Truth.TRUE else Reason.POD_SCHEDULING_UNKNOWN
    return Verdict(status, said.reason or fallback, said.message)


def _healthy(trouble: Trouble) -> Verdict | None:
    if not trouble.text:
        return None
    reason = Reason.CONTROLLER_TROUBLE if trouble.failed else Reason.CONFIGURATION_TROUBLE
    return Verdict(Truth.FALSE, reason, trouble.text)


def _held_up(view: SandboxView, finished: Verdict | None) -> Verdict | None:
    pod = view.own_pod
    if pod is None or finished is not None or view.sandbox.spec.suspended or view.departing(pod) or not pod.held_up:
        return None
    return Verdict(Truth.FALSE, Reason.POD_NOT_STARTING, f"The pod is held up: {pod.held_up}")


def _ready(view: SandboxView, finished: Verdict | None, trouble: Trouble) -> Verdict:
    fact = _fact(view, finished)
    if fact.status is Truth.TRUE or fact.reason == Reason.MULTIPLE_PODS or not trouble.text:
        return fact
    return Verdict(Truth.FALSE, Reason.RECONCILER_ERROR, f"Error seen: {trouble.text}")


def _fact(view: SandboxView, finished: Verdict | None) -> Verdict:
    """Whether the sandbox can be used, judged by its pod and Service alone."""
    pod = view.own_pod
    if view.sandbox.spec.suspended:
        pending = view.owned or view.pod is not None
        message = "Sandbox is suspending" if pending else "Sandbox is suspended"
        return Verdict(Truth.FALSE, Reason.SANDBOX_SUSPENDED, message)
    if view.ambiguous:
        message = (
            f"{len(view.owned)} pods belong to this sandbox; it neither picks one nor makes another: delete all but one"
        )
        return Verdict(Truth.FALSE, Reason.MULTIPLE_PODS, message)
    if finished is not None:
        return finished._replace(status=Truth.FALSE)
    pod_ready, pod_text = _pod_ready(view, pod)
    service_ready, service_text = _service_ready(view)
    message = f"{pod_text}; {service_text}" if service_text else pod_text
    if pod_ready and service_ready:
        return Verdict(Truth.TRUE, Reason.DEPENDENCIES_READY, message)
    return Verdict(Truth.FALSE, Reason.DEPENDENCIES_NOT_READY, message)


def _pod_ready(view: SandboxView, pod: Pod | None) -> tuple[bool, str]:
    if pod is None:
        if view.pod is not None and holding(view.pod, view.sandbox) is Holding.PREDECESSOR:
            return False, "Waiting for the pod of an earlier sandbox of this name to go"
        if (owner := view.orphaned) is not None:
            return False, f"Waiting for {owner.kind} {owner.name}, which owns this sandbox and is not there"
        return False, "The pod does not exist"
    if view.departing(pod):
        return False, "The pod is going away"
    running = pod.status.phase == Phase.RUNNING
    if running and pod.ready:
        return (True, "Pod is Ready") if pod.ips else (False, "Pod is Ready but has no podIPs yet")
    held_up = f" ({pod.held_up})" if pod.held_up else ""
    if not running:
        return False, f"The pod's phase is {pod.status.phase or Phase.PENDING}{held_up}"
    return False, f"The pod is running but not ready{held_up}"


def _service_ready(view: SandboxView) -> tuple[bool, str]:
    there = view.service is not None and view.own_service is not None
    wanted = view.sandbox.spec.service
    if wanted is False or (wanted is None and not there):
        return True, ""
    return there, "Service Exists" if there else "Service does not exist"


class SandboxEvent(NamedTuple):
    """One Event about a sandbox."""

    reason: EventReason
    message: str
    action: str = "Reconciling"

    @property
    def kind(self) -> Kind:
        return Kind.WARNING if self.reason.grave else Kind.NORMAL


_READY: dict[str, tuple[EventReason, str]] = {
    Reason.MULTIPLE_PODS: (EventReason.MULTIPLE_PODS, "Reconciling"),
    Reason.POD_FAILED: (EventReason.POD_FAILED, "Reconciling"),
    Reason.SANDBOX_EXPIRED: (EventReason.SANDBOX_EXPIRED, "Expiring"),
}
_BESIDE: dict[str, EventReason] = {
    Reason.CONFIGURATION_TROUBLE: EventReason.CONFIGURATION_TROUBLE,
    Reason.CONTROLLER_TROUBLE: EventReason.CONTROLLER_TROUBLE,
    Reason.POD_OUTDATED: EventReason.POD_OUTDATED,
}
"""Reasons of conditions that exist only while something is wrong. For a pod that does not start, the kubelet emits Events."""


def events_of(old: SandboxStatus, new: SandboxStatus) -> list[SandboxEvent]:
    return [*_of_ready(old, new), *_of_trouble(old, new), *_of_suspension(old, new)]


def _of_ready(old: SandboxStatus, new: SandboxStatus) -> Iterator[SandboxEvent]:
    before, after = find(old.conditions, Type.READY), find(new.conditions, Type.READY)
    if after is None or (before is not None and before.reason == after.reason):
        return
    event = _READY.get(after.reason)
    if event is not None:
        yield SandboxEvent(event[0], after.message, event[1])


def _of_trouble(old: SandboxStatus, new: SandboxStatus) -> Iterator[SandboxEvent]:
    for type_ in (Type.HEALTHY, Type.POD_UP_TO_DATE):
        before, after = find(old.conditions, type_), find(new.conditions, type_)
        if after is None or (event := _BESIDE.get(after.reason)) is None:
            continue
        if before is None or before.reason not in _BESIDE or _worse(before, after):
            yield SandboxEvent(event, after.message)


def _worse(before: Condition, after: Condition) -> bool:
    """Whether there is something new for a user to do. Errors that are retried have a new message each time."""
    return after.reason == Reason.CONFIGURATION_TROUBLE and (before.reason, before.message) != (
        after.reason,
        after.message,
    )


def _of_suspension(old: SandboxStatus, new: SandboxStatus) -> Iterator[SandboxEvent]:
    was, is_ = is_true(old.conditions, Type.SUSPENDED), is_true(new.conditions, Type.SUSPENDED)
    if is_ and not was:
        yield SandboxEvent(
            EventReason.SANDBOX_SUSPENDED, "The pod is gone; persistent volumes and the Service stay", "Suspending"
        )
    elif was and not is_:
        yield SandboxEvent(EventReason.SANDBOX_RESUMED, "The sandbox is meant to run again", "Resuming")
