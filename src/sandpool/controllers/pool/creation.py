"""Creates members, each at most once even if answers are lost: their names and bodies, and batches that grow while they succeed.

A name counts as a member from the moment that its create is sent until the answer is in the cache. If no answer came, one
consistent read by name settles it. A name that turned out to be free is used again first: if the lost create arrives late
after all, it and its successor are one object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from sandpool.base.errors import SandpoolError
from sandpool.controllers.pool.memory import Memory
from sandpool.controllers.pool.options import Options
from sandpool.controllers.pool.plan import Outcome, uncertain
from sandpool.controllers.pool.view import PoolView
from sandpool.kube.errors import AlreadyExists, ApiError, Conflict, Invalid, NotFound, TooManyRequests
from sandpool.loop.cache import Cache
from sandpool.loop.writes import Writes
from sandpool.model import labels
from sandpool.model.blueprint import pod_template_hash, secure_pod_spec
from sandpool.model.container_defaults import NONE, ContainerDefaults
from sandpool.model.kinds import SANDBOXES
from sandpool.model.labels import Creator, LaunchType
from sandpool.model.metadata import Key, Metadata, OwnerReference
from sandpool.model.names import MAX_LABEL, name_hash
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import PodMetadata, PodTemplate, Sandbox, SandboxSpec
from sandpool.model.template import SandboxTemplate
from sandpool.telemetry.reconcile_history import note

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels, so that no words come out, and no characters that look alike."""
RANDOM = 8
_SUFFIXES = len(ALPHABET) ** RANDOM


def member_name(pool: str, random: Callable[[], float]) -> str:
    """A name that a pod, its host name and a Service can have, too: long names of pools are cut. One random number is enough for the
    whole suffix."""
    number, suffix = int(random() * _SUFFIXES), ""
    for _ in range(RANDOM):
        number, digit = divmod(number, len(ALPHABET))
        suffix += ALPHABET[digit]
    return f"{pool[: MAX_LABEL - RANDOM - 1].rstrip('-.')}-{suffix}"


def blank_member(
    pool: SandboxWarmPool, template: SandboxTemplate, blueprint: str, defaults: ContainerDefaults = NONE
) -> Sandbox:
    """The body of a member without a name: built once for many creates."""
    source = template.spec
    marks = {
        labels.WARM_POOL: name_hash(pool.metadata.name),
        labels.TEMPLATE_REF_HASH: name_hash(template.metadata.name),
        labels.TEMPLATE_HASH: blueprint,
        labels.POD_TEMPLATE_HASH: pod_template_hash(source.pod_template),
    }
    ours = source.pod_template.metadata or PodMetadata()
    return Sandbox(
        metadata=Metadata(
            namespace=pool.metadata.namespace,
            labels={**marks, labels.LAUNCH_TYPE: LaunchType.WARM.value, labels.CREATED_BY: Creator.CONTROLLER.value},
            annotations={labels.TEMPLATE_REF: template.metadata.name},
            owner_references=(owner_reference(pool),),
        ),
        spec=SandboxSpec(
            pod_template=PodTemplate(
                spec=msgspec.Raw(msgspec.json.encode(secure_pod_spec(source, defaults))),
                metadata=PodMetadata(labels={**ours.labels, **marks}, annotations=ours.annotations),
            ),
            volume_claim_templates=source.volume_claim_templates,
            service=source.service,
        ),
    )


def named(blank: Sandbox, name: str) -> Sandbox:
    """The member with its name. The annotation with its pod's name is set from the beginning, which saves a later write."""
    meta = blank.metadata
    annotations = {**meta.annotations, labels.POD_NAME: name}
    return msgspec.structs.replace(blank, metadata=msgspec.structs.replace(meta, name=name, annotations=annotations))


def owner_reference(pool: SandboxWarmPool) -> OwnerReference:
    return OwnerReference(
        api_version=SandboxWarmPool.api_version,
        kind=SandboxWarmPool.kind,
        name=pool.metadata.name,
        uid=pool.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


Job = Callable[[], Coroutine[Any, Any, bool]]
"""Returns whether it succeeded. Raises only for bugs."""


def ramp(count: int, first: int, most: int) -> Iterator[int]:
    """Sizes of batches that make up `count`: they double from `first` to `most`."""
    size = max(1, min(first, most))
    while count > 0:
        yield min(size, count)
        count -= size
        size = min(2 * size, max(1, most))


async def run(jobs: Sequence[Job], first: int, most: int) -> bool:
    """Runs the jobs in batches and stops after a batch with a failure. Returns whether all succeeded."""
    start = 0
    for size in ramp(len(jobs), first, most):
        batch = jobs[start : start + size]
        start += size
        if len(batch) == 1:
            done = [await batch[0]()]
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(job()) for job in batch]
            done = [task.result() for task in tasks]
        if not all(done):
            return False
    return True


Current = Callable[[], bool]
"""Whether pool and template are still those of the decision."""


@dataclass(frozen=True, slots=True)
class Maker:
    """Creates members."""

    writes: Writes
    sandboxes: Cache[Sandbox]
    random: Callable[[], float]
    options: Options
    defaults: ContainerDefaults

    async def settle(self, pool: SandboxWarmPool, memory: Memory, outcome: Outcome) -> None:
        """Settles creates whose answers are missing, by reading each name."""
        jobs = [partial(self._settle, pool, memory, name, outcome) for name in memory.unsettled]
        await run(jobs, self.options.concurrency, self.options.concurrency)

    async def make(
        self, view: PoolView, blueprint: str, memory: Memory, count: int, current: Current, outcome: Outcome
    ) -> None:
        if count <= 0 or view.template is None:
            return
        note(f"create {count}")
        blank = blank_member(view.pool, view.template, blueprint, self.defaults)
        jobs = [partial(self._make, view.pool, memory, blank, current, outcome)] * count
        most = self.options.concurrency
        well = await run(jobs, 1 if memory.careful else most, most)
        memory.careful = not well
        if well:
            memory.failed = ""

    async def _make(
        self, pool: SandboxWarmPool, memory: Memory, blank: Sandbox, current: Current, outcome: Outcome
    ) -> bool:
        if not current():
            return True  # the change has woken the pool
        name = self._name(pool, memory)
        memory.unsettled[name] = None
        try:
            await self.writes.create(SANDBOXES, named(blank, name), pool.metadata.namespace)
        except AlreadyExists:
            outcome.again = True
            return await self._settle(pool, memory, name, outcome)
        except SandpoolError as error:
            outcome.errors.append(error)
            if not uncertain(error):
                del memory.unsettled[name]
                memory.names.append(name)
                self._explain(pool, memory, error, outcome)
            return False
        del memory.unsettled[name]
        return True

    async def _settle(self, pool: SandboxWarmPool, memory: Memory, name: str, outcome: Outcome) -> bool:
        key = Key(pool.metadata.namespace, name)
        if self.sandboxes.get(key) is None:
            try:
                await self.writes.get(SANDBOXES, name, key.namespace)  # the answer enters the cache
            except NotFound:
                memory.names.append(name)
            except SandpoolError as error:
                outcome.errors.append(error)
                return False
        # If it is ours, it counts as a member now. If not, another name will be drawn.
        memory.unsettled.pop(name, None)
        return True

    def _explain(self, pool: SandboxWarmPool, memory: Memory, error: SandpoolError, outcome: Outcome) -> None:
        """Keeps an error that a user can act on for the condition. A body that the server rejects is not tried again soon."""
        template = pool.spec.sandbox_template_ref.name
        if isinstance(error, Invalid) and error.causes and memory.judged is not None:
            message = f"The API server refuses members of SandboxTemplate {template}, change it: {error}"
            memory.refused, outcome.refused = (memory.judged, message), True
            outcome.errors.remove(error)
        elif isinstance(error, ApiError) and not isinstance(error, Conflict | TooManyRequests):
            memory.failed = f"Members of SandboxTemplate {template} cannot be created: {error}"

    def _name(self, pool: SandboxWarmPool, memory: Memory) -> str:
        while memory.names:
            name = memory.names.pop()
            if self._free(pool, memory, name):
                return name
        while not self._free(pool, memory, name := member_name(pool.metadata.name, self.random)):
            pass
        return name

    def _free(self, pool: SandboxWarmPool, memory: Memory, name: str) -> bool:
        return name not in memory.unsettled and self.sandboxes.get(Key(pool.metadata.namespace, name)) is None
