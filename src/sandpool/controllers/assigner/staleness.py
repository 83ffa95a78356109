"""Which members are not what their pool's template would make today. Remembered: every event of every member asks it."""

from __future__ import annotations

from typing import NamedTuple

from sandpool.controllers.assigner.read import owning_pool, stale
from sandpool.loop.cache import Cache
from sandpool.model.blueprint import blueprint_hash
from sandpool.model.container_defaults import NONE, ContainerDefaults
from sandpool.model.metadata import Key, Uid
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate


class _Judged(NamedTuple):
    template: Uid
    template_generation: int
    generation: int
    labels: dict[str, str]
    stale: bool


class Staleness:
    """Whoever asks about sandboxes also says, by `forget`, when one is no member any more: no memory outlives its object."""

    def __init__(
        self, pools: Cache[SandboxWarmPool], templates: Cache[SandboxTemplate], defaults: ContainerDefaults = NONE
    ) -> None:
        self.defaults = defaults  # that templates are filled up with, by whoever makes a sandbox of one
        self._pools = pools
        self._templates = templates
        self._hashes: dict[Key, tuple[Uid, int, str]] = {}
        self._judged: dict[Uid, _Judged] = {}
        self._last: _Judged | None = None  # the members of a pool are judged alike: it is kept once
        templates.subscribe(self._template)

    def template_of(self, pool: SandboxWarmPool) -> SandboxTemplate | None:
        """The template that the pool refers to; one that is being deleted makes no more sandboxes."""
        found = self._templates.get(pool.template_key)
        return None if found is None or found.metadata.leaving else found

    def blueprint(self, template: SandboxTemplate) -> str:
        """The hash that names what the template makes."""
        meta = template.metadata
        known = self._hashes.get(meta.key)
        if known is not None and known[:2] == (meta.uid, meta.generation):
            return known[2]
        value = blueprint_hash(template.spec, self.defaults)
        if self._templates.get(meta.key) is template:  # of what it was once nothing is kept
            self._hashes[meta.key] = (meta.uid, meta.generation, value)
        return value

    def stale(self, sandbox: Sandbox) -> bool:
        """False where nobody can say: it is no member, or its pool or template is not known."""
        owner, meta = owning_pool(sandbox), sandbox.metadata
        pool = None if owner is None else self._pools.get(Key(meta.namespace, owner.name))
        if owner is None or pool is None or pool.metadata.uid != owner.uid:
            return False
        template = self.template_of(pool)
        if template is None:
            return False
        of = template.metadata
        known = self._judged.get(meta.uid)
        if known is not None and known[:4] == (of.uid, of.generation, meta.generation, meta.labels):
            return known.stale
        answer = stale(sandbox, template, self.blueprint(template), self.defaults)
        judged = _Judged(of.uid, of.generation, meta.generation, meta.labels, answer)
        if judged != self._last:
            self._last = judged
        self._judged[meta.uid] = self._last
        return answer

    @property
    def remembered(self) -> tuple[int, int]:
        """How many templates and members something is remembered of."""
        return len(self._hashes), len(self._judged)

    def _template(self, old: SandboxTemplate | None, new: SandboxTemplate | None) -> None:
        if new is None and old is not None:
            self._hashes.pop(old.metadata.key, None)

    def forget(self, sandbox: Uid) -> None:
        """The sandbox is no member any more."""
        self._judged.pop(sandbox, None)
