"""Decides what a sandbox needs next. Pure: no I/O, no clock, no logging."""

from __future__ import annotations

from datetime import datetime

from sandpool.controllers.sandbox.options import Options
from sandpool.controllers.sandbox.pod import adopt_pod, create_pod, sync_pod
from sandpool.controllers.sandbox.service import plan_service
from sandpool.controllers.sandbox.steps import Change, Plan, Step, change, decided_on, delete
from sandpool.controllers.sandbox.view import Holding, SandboxView, adoptable, holding
from sandpool.controllers.sandbox.volumes import plan_volumes
from sandpool.model.expiry import expired, sandbox_end
from sandpool.model.kinds import PODS, SANDBOXES, SERVICES
from sandpool.model.labels import ADOPTABLE, POD_NAME
from sandpool.model.pod import Pod
from sandpool.model.sandbox import Sandbox, ShutdownPolicy

Part = tuple[tuple[Step, ...], str]
"""Steps, and why something cannot be done; empty if all can."""


def plan_sandbox(view: SandboxView, options: Options, now: datetime) -> Plan:
    end, suspended = sandbox_end(view.sandbox), view.sandbox.spec.suspended
    if end is not None and expired(end, now):
        return plan_end(view)
    storage = plan_volumes(view)
    if suspended:
        pod: Part = (plan_suspension(view), "")
    else:
        pod = plan_pod(view, options, storage_usable=storage.usable)
    # With several pods behind one selector a Service would send traffic to any of them.
    unclear = len(view.owned) > 1 and view.ambiguous and not suspended and view.sandbox.spec.service is not False
    service: Part = ((), "") if unclear else plan_service(view)
    return Plan(
        (*storage.steps, *pod[0], *service[0]),
        tuple(filter(None, (*storage.refused, pod[1], service[1]))),
        look_again_at=end,
        decided_on=decided_on(view.sandbox),
    )


def plan_end(view: SandboxView) -> Plan:
    """Deletes what runs and keeps storage. A pod that is already being deleted is not deleted again."""
    sandbox = view.sandbox
    steps: list[Step] = [delete(PODS, pod.metadata, "expired") for pod in view.staying]
    if (service := view.own_service) is not None:
        steps.append(delete(SERVICES, service.metadata, "expired"))
    if sandbox.spec.shutdown_policy == ShutdownPolicy.DELETE:
        # Pinned: if it was just given more time, the delete must fail.
        steps.append(delete(SANDBOXES, sandbox.metadata, "expired", pinned=True))
    return Plan(tuple(steps), expired=True, decided_on=decided_on(sandbox))


def plan_suspension(view: SandboxView) -> tuple[Step, ...]:
    if view.owned:
        return tuple(delete(PODS, pod.metadata, "suspended") for pod in view.staying)
    return _point(view.sandbox, None)


def plan_pod(view: SandboxView, options: Options, *, storage_usable: bool) -> Part:
    pod, sandbox = view.pod, view.sandbox
    if pod is None and view.ambiguous:
        return (), ""  # several pods are ours: the user has to choose
    if pod is not None and holding(pod, sandbox) is Holding.OURS:
        return _keep(view, pod, options), ""
    if pod is not None and pod is view.tracked and not _may_take(view, pod):
        pod = view.named  # the annotation names a pod of another owner: ignore it
    if pod is None:
        possible = storage_usable and view.orphaned is None
        creation = (create_pod(view, options),) if possible else ()
        return (*creation, *_point(sandbox, None)), ""
    if _may_take(view, pod):
        return (adopt_pod(view, pod, options), *_point(sandbox, pod)), ""
    unpoint = _point(sandbox, None)
    if view.departing(pod) or holding(pod, sandbox) is Holding.PREDECESSOR:
        return unpoint, ""  # the name will be free soon, and that wakes the sandbox
    return unpoint, _refusal(pod)


def _keep(view: SandboxView, pod: Pod, options: Options) -> tuple[Step, ...]:
    """A pod that is being deleted is waited for: it is replaced when its name is free."""
    if view.departing(pod):
        return ()
    synced, pointed = sync_pod(view, pod, options), _point(view.sandbox, pod)
    return pointed if synced is None else (synced, *pointed)


def _may_take(view: SandboxView, pod: Pod) -> bool:
    free = holding(pod, view.sandbox) is Holding.NOBODY and not view.departing(pod)
    return free and adoptable(pod, view.sandbox)


def _point(sandbox: Sandbox, pod: Pod | None) -> tuple[Change, ...]:
    """Corrects the annotation that names the pod. Without one, readers assume the sandbox's own name."""
    own = sandbox.metadata.name
    present = sandbox.metadata.annotations.get(POD_NAME, "")
    name = None if pod is None or pod.metadata.name == own else pod.metadata.name
    if present == (name or "") or (name is None and present == own):
        return ()
    body = {"metadata": {"annotations": {POD_NAME: name}}}
    return (change(SANDBOXES, sandbox.metadata, body, f"its pod is {name or 'of its own name'}"),)


def _refusal(pod: Pod) -> str:
    owner = pod.metadata.controller
    if owner is not None:
        return f"Pod {pod.metadata.name} belongs to {owner.kind} {owner.name}; rename the sandbox or delete that pod"
    return (
        f"Pod {pod.metadata.name} exists and nobody owns it; "
        f"label it {ADOPTABLE}=true to let this sandbox use it, or delete it"
    )
