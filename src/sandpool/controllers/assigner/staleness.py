"""Which members no longer match their pool's template. Cached, because every event of every member asks it."""

from __future__ import annotations

from typing import NamedTuple

from sandpool.controllers.assigner.facts import owning_pool, stale
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
    """Caches which members are stale. Callers must `forget` a sandbox that is no longer a member, so that no entry outlives its object."""

    def __init__(
        self, pools: Cache[SandboxWarmPool], templates: Cache[SandboxTemplate], defaults: ContainerDefaults = NONE
    ) -> None:
        self.defaults = defaults  # that are filled in when a sandbox is made from a template
        self._pools = pools
        self._templates = templates
        self._hashes: dict[Key, tuple[Uid, int, str]] = {}
        self.judged: dict[Uid, _Judged] = {}
        self._last: _Judged | None = None  # shared: most members of a pool are judged alike
        templates.subscribe(self._template)

    def template_of(self, pool: SandboxWarmPool) -> SandboxTemplate | None:
        """The template that the pool refers to; one that is being deleted makes no more sandboxes."""
        found = self._templates.get(pool.template_key)
        return None if found is None or found.metadata.leaving else found

    def blueprint(self, template: SandboxTemplate) -> str:
        """The blueprint hash of what the template makes."""
        meta = template.metadata
        known = self._hashes.get(meta.key)
        if known is not None and known[:2] == (meta.uid, meta.generation):
            return known[2]
        value = blueprint_hash(template.spec, self.defaults)
        if self._templates.get(meta.key) is template:  # the hash of an old state is not kept
            self._hashes[meta.key] = (meta.uid, meta.generation, value)
        return value

    def stale(self, sandbox: Sandbox) -> bool:
        """False if unknown: it is no member, or its pool or template is not cached."""
        owner, meta = owning_pool(sandbox), sandbox.metadata
        pool = None if owner is None else self._pools.get(Key(meta.namespace, owner.name))
        if owner is None or pool is None or pool.metadata.uid != owner.uid:
            return False
        template = self.template_of(pool)
        if template is None:
            return False
        of = template.metadata
        known = self.judged.get(meta.uid)
        if known is not None and known[:4] == (of.uid, of.generation, meta.generation, meta.labels):
            return known.stale
        answer = stale(sandbox, template, self.blueprint(template), self.defaults)
        judged = _Judged(of.uid, of.generation, meta.generation, meta.labels, answer)
        if judged != self._last:
            self._last = judged
        self.judged[meta.uid] = self._last
        return answer

    @property
    def remembered(self) -> tuple[int, int]:
        """How many templates and members are cached."""
        return len(self._hashes), len(self.judged)

    def _template(self, old: SandboxTemplate | None, new: SandboxTemplate | None) -> None:
        if new is None and old is not None:
            self._hashes.pop(old.metadata.key, None)

    def forget(self, sandbox: Uid) -> None:
        """The sandbox is no member any more."""
        self.judged.pop(sandbox, None)
