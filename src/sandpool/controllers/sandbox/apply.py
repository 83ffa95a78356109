"""Carries out a sandbox's plan step by step. A failed step does not stop the others, except those that depend on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sandpool.base.errors import SandpoolError
from sandpool.controllers.sandbox.observe import Found
from sandpool.controllers.sandbox.status import NO_TROUBLE, Trouble
from sandpool.controllers.sandbox.steps import Change, Create, Delete, Plan, Step
from sandpool.kube.api import Api
from sandpool.kube.errors import AlreadyExists, Conflict, Invalid, NotFound, TooManyRequests, Unreachable
from sandpool.loop.outcome import raise_all
from sandpool.model.kinds import PODS
from sandpool.telemetry.reconcile_history import note


@dataclass(slots=True)
class Outcome:
    """What came of a plan. `found`: objects that were there already, though the caches did not show them."""

    errors: list[SandpoolError] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    pod_unknown: bool = False
    made: bool = False  # something was created

    def trouble(self, plan: Plan) -> Trouble:
        if not (plan.refused or self.refused or self.failed or self.pod_unknown):
            return NO_TROUBLE
        return Trouble((*plan.refused, *self.refused), tuple(self.failed), self.pod_unknown)

    @property
    def complete(self) -> bool:
        """Whether every step so far succeeded."""
        return not self.errors and not self.found and not self.refused

    def fail(self, step: Step, error: SandpoolError) -> None:
        if isinstance(step, Create) and isinstance(error, Invalid) and error.causes:
            self.refused.append(f"could not {step}: {error}; change the sandbox, or the template that it was made from")
            return  # the same body would be rejected again
        self.errors.append(error)
        if isinstance(error, Conflict | TooManyRequests):
            return  # settled by a retry: nothing that a user could act on
        self.failed.append(f"could not {step}: {error}")
        if isinstance(step, Create) and step.resource == PODS and isinstance(error, Unreachable):
            self.pod_unknown = True

    def raise_all(self) -> None:
        raise_all(self.errors)


async def apply(writes: Api, namespace: str, plan: Plan, still: Callable[[], bool] = lambda: True) -> Outcome:
    """Applies the steps in order. `still` is checked before each step but the first: while another step was under way, the sandbox may have
    changed. Nothing was awaited between the plan and its first step."""
    outcome = Outcome()
    for index, step in enumerate(plan.steps):
        if index and not still():
            note("the sandbox is not what it was: decided anew")
            break
        if isinstance(step, Create) and step.gated and not outcome.complete:
            continue
        if isinstance(step, Change) and step.gated and outcome.errors:
            continue  # a failed step is retried first
        note(step)
        try:
            await _do(writes, namespace, step, outcome)
        except SandpoolError as error:
            outcome.fail(step, error)
    return outcome


async def _do(writes: Api, namespace: str, step: Step, outcome: Outcome) -> None:
    match step:
        case Create(resource, body):
            try:
                await writes.create(resource, body, namespace)
                outcome.made = True
            except AlreadyExists:
                # The cache is behind, or an answer was lost: the server knows who owns it.
                outcome.found.append((resource, await writes.get(resource, step.name, namespace)))
        case Change(resource, name, patch):
            try:
                await writes.patch(resource, name, patch, namespace)
            except NotFound:
                pass  # its DELETED event will wake us
        case Delete(resource, name, preconditions):
            try:
                await writes.delete(resource, name, namespace, preconditions=preconditions)
            except NotFound:
                pass
            except Conflict:
                if preconditions.revision is not None or await _stays(writes, namespace, step):
                    raise


async def _stays(writes: Api, namespace: str, step: Delete) -> bool:
    """Whether the same object still exists and is not being deleted. A server has more than one reason for a conflict."""
    try:
        meta = (await writes.get(step.resource, step.name, namespace)).metadata
    except NotFound:
        return False
    return meta.uid == step.preconditions.uid and not meta.leaving
