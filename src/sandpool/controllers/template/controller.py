"""The SandboxTemplate controller: observe, plan, apply, publish."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from sandpool.base.backoff import Streak
from sandpool.base.clock import Clock
from sandpool.controllers.template.plan import (
    CreatePolicy,
    DeletePolicy,
    PatchPolicy,
    PatchTemplate,
    Plan,
    Step,
    TemplateView,
    plan_template,
)
from sandpool.controllers.template.policy import SUFFIX, Options, marked, policy_name
from sandpool.kube.errors import AlreadyExists, NotFound
from sandpool.kube.priority import Priority
from sandpool.loop.cache import Cache
from sandpool.loop.controller import Controller, Limits
from sandpool.loop.events import Events, Kind, NullEvents
from sandpool.loop.outcome import Done
from sandpool.loop.writes import Writes
from sandpool.model import labels
from sandpool.model.core import NetworkPolicy
from sandpool.model.event_reasons import EventReason
from sandpool.model.kinds import NETWORK_POLICIES, TEMPLATES
from sandpool.model.metadata import Key, Object, Uid
from sandpool.model.names import name_hash
from sandpool.model.pod import Pod
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.reconcile_history import ReconcileHistory, note
from sandpool.telemetry.trace import NullTracer, Tracer

NAME = "template"
_MOMENT = 1.0  # seconds before a policy is made for the third time, doubling
CONFLICT = EventReason.NETWORK_POLICY_CONFLICT


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches that the template controller reads."""

    templates: Cache[SandboxTemplate]
    policies: Cache[NetworkPolicy]
    sandboxes: Cache[Sandbox]
    pods: Cache[Pod]


class TemplateController:
    """The controller of templates. `writes` must know the caches of templates and policies. Run `loop`."""

    def __init__(
        self,
        writes: Writes,
        caches: Caches,
        clock: Clock,
        metrics: Metrics,
        history: ReconcileHistory,
        *,
        events: Events = NullEvents(),
        options: Options = Options(),
        limits: Limits = Limits(workers=1),
        tracer: Tracer = NullTracer(),
    ) -> None:
        self._writes = writes
        self._caches = caches
        self._events = events
        self._options = options
        self._clock = clock
        self._made: dict[Uid, Streak] = {}  # policies that were made, by the template
        caches.templates.subscribe(self._forget)
        self._policies = caches.policies.index(_by_hash)
        self._namesakes = caches.templates.index(lambda one: (_mark(one.metadata.key),))
        self._protected = (caches.sandboxes.index(_by_hash), caches.pods.index(_by_hash))
        self.loop: Controller[Key] = Controller(NAME, self.reconcile, clock, metrics, history, limits, tracer)
        self.loop.on(caches.templates, lambda one: self._concerned((one.metadata.key,)), reduce=_of_template)
        self.loop.on(caches.policies, lambda one: self._concerned(_templates_of(one)), reduce=_of_policy)
        self.loop.on(caches.sandboxes, self._orphaned, reduce=_by_hash, priority=Priority.BACKGROUND)
        self.loop.on(caches.pods, self._orphaned, reduce=_by_hash, priority=Priority.BACKGROUND)

    async def reconcile(self, key: Key) -> Done:
        view = self.observe(key)
        plan = plan_template(view, self._options)
        if plan.creates and (wait := self._wait(view)) is not None:
            if wait > 0:
                return Done(again_after=wait)
            view = await self._confirmed(key)
            plan = plan_template(view, self._options)
        await self.apply(key, plan)
        self.publish(view, plan)
        return Done()

    def _wait(self, view: TemplateView) -> float | None:
        """Seconds until the policy may be created again; None: it was not created before."""
        made = None if view.template is None else self._made.get(view.template.metadata.uid)
        if made is None or made.at is None:
            return None
        return made.at + made.delay(_MOMENT) - self._clock.monotonic()

    async def _confirmed(self, key: Key) -> TemplateView:
        """The policy was created, and somebody deleted it: perhaps another leader that knows that the template is gone. So the server is
        asked first. A policy that keeps being deleted is created less and less often."""
        try:
            await self._writes.get(TEMPLATES, key.name, key.namespace)
        except NotFound:
            pass  # and the cache knows it now
        return self.observe(key)

    def observe(self, key: Key) -> TemplateView:
        mark, template = _mark(key), self._caches.templates.get(key)
        return TemplateView(
            name=key.name,
            template=template,
            policy=self._caches.policies.get(Key(key.namespace, policy_name(key.name))),
            protected=any(index.count(mark) for index in self._protected),
            rival="" if template is None else self._rival(template),
        )

    def _rival(self, template: SandboxTemplate) -> str:
        """An earlier template whose name has the same hash, or a deleted one that has left its policy behind. Almost always none."""
        key = template.metadata.key
        earlier = [other for other in self._namesakes.get(_mark(key)) if _age(other) < _age(template)]
        if earlier:
            return min(earlier, key=_age).metadata.name
        for policy in self._policies.get(_mark(key)):
            name = policy.metadata.annotations.get(labels.TEMPLATE_REF, "")
            gone = self._caches.templates.get(Key(key.namespace, name)) is None
            if gone and name != key.name and marked(policy.metadata, name):
                return name
        return ""

    def _concerned(self, keys: Iterable[Key]) -> Collection[Key]:
        """These templates, and those whose names have the same hash."""
        found = dict.fromkeys(keys)
        for key in tuple(found):
            found.update((other.metadata.key, None) for other in self._namesakes.get(_mark(key)))
        return found

    async def apply(self, key: Key, plan: Plan) -> None:
        for step in plan.steps:
            note(step)
            try:
                await self._do(key, step)
            except NotFound:
                pass  # the watch will say so, and that wakes us
            except AlreadyExists:
                # The cache was behind. What the server answers enters it, and that wakes us too.
                await self._writes.get(NETWORK_POLICIES, policy_name(key.name), key.namespace)

    async def _do(self, key: Key, step: Step) -> None:
        writes, namespace = self._writes, key.namespace
        match step:
            case PatchTemplate(patch):
                await writes.patch(TEMPLATES, key.name, patch, namespace)
            case CreatePolicy(body):
                await writes.create(NETWORK_POLICIES, body, namespace)
                self._streak(key).count(self._clock.monotonic())
            case PatchPolicy(name, patch):
                await writes.patch(NETWORK_POLICIES, name, patch, namespace)
            case DeletePolicy(name, preconditions):
                self._streak(key).end()  # we delete it ourselves
                await writes.delete(NETWORK_POLICIES, name, namespace, preconditions=preconditions)

    def _streak(self, key: Key) -> Streak:
        """The creates of a template's policy; not kept if the template is gone."""
        template = self._caches.templates.get(key)
        return Streak() if template is None else self._made.setdefault(template.metadata.uid, Streak())

    def _forget(self, old: SandboxTemplate | None, new: SandboxTemplate | None) -> None:
        if old is not None and new is None:
            self._made.pop(old.metadata.uid, None)

    def publish(self, view: TemplateView, plan: Plan) -> None:
        """A template has no status: what a person should know is an Event."""
        if plan.conflict and view.template is not None:
            self._events.emit(TEMPLATES, view.template, Kind.WARNING, CONFLICT, plan.conflict)

    def _orphaned(self, obj: Object) -> Collection[Key]:
        """Deleted templates whose policy may have protected this object last. While a template exists, nothing depends on the number
        of its sandboxes, so nothing is woken."""
        return [
            key
            for mark in _by_hash(obj)
            for policy in self._policies.get(mark)
            for key in _templates_of(policy)
            if self._caches.templates.get(key) is None
        ]


def _mark(key: Key) -> tuple[str, str]:
    return key.namespace, name_hash(key.name)


def _age(template: SandboxTemplate) -> tuple[bool, datetime, str]:
    """Earlier ones first; by name where a second is too coarse."""
    meta = template.metadata
    created = meta.creation_timestamp
    return created is not None, created or datetime.min, meta.name


def _by_hash(obj: Object) -> tuple[tuple[str, str], ...]:
    value = obj.metadata.labels.get(labels.TEMPLATE_REF_HASH)
    return () if value is None else ((obj.metadata.namespace, value),)


def _templates_of(policy: NetworkPolicy) -> tuple[Key, ...]:
    """The template that the policy belongs to or, by its name, would belong to."""
    meta = policy.metadata
    names = {meta.annotations.get(labels.TEMPLATE_REF, ""), meta.name.removesuffix(SUFFIX)}
    return tuple(Key(meta.namespace, name) for name in sorted(names) if name and policy_name(name) == meta.name)


def _of_template(template: SandboxTemplate) -> object:
    meta, spec = template.metadata, template.spec
    mark = meta.labels.get(labels.TEMPLATE_REF_HASH)
    return meta.uid, meta.leaving, mark, spec.network_policy, spec.network_policy_management


def _of_policy(policy: NetworkPolicy) -> object:
    meta = policy.metadata
    marks = meta.labels.get(labels.TEMPLATE_REF_HASH), meta.annotations.get(labels.TEMPLATE_REF)
    return meta.uid, meta.leaving, marks, meta.owner_references, policy.spec
