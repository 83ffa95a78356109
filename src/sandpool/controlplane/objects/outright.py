"""The write that creates a claim and hands it its sandbox: one commit. See kube/outright.py.

It holds what three writes would have left behind: the claim as it was sent, which is what its creator is answered and can watch from; the
sandbox, which is the claim's; the claim, which shows it. The sandbox is changed by the same steps as by any other patch. If it is not as it was when the grant was decided, or if it
cannot be changed so, the claim is created without.

Whoever remembers a claim only once its POST has returned must not have heard of its Ready before. So a creator that is answered elsewhere asks to go on
`early`: its answer is on its way before a watch, a list or a read can show anything of this commit. The next event that shows the claim as Ready follows soon
(controllers/claim/first_ready.py), because the threads of a client may still take up the two in another order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sandpool.base.shares import Shares
from sandpool.controlplane.admission.admit import FieldValidation
from sandpool.controlplane.admission.metadata import annotations_fit
from sandpool.controlplane.objects import refusals
from sandpool.controlplane.objects.acknowledged import Acknowledged
from sandpool.controlplane.objects.change import Change
from sandpool.controlplane.objects.document import Document, decode
from sandpool.controlplane.objects.keys import key_of
from sandpool.controlplane.objects.patching import patched
from sandpool.controlplane.objects.typed import Typed
from sandpool.controlplane.store.errors import StoreError
from sandpool.controlplane.store.port import Store
from sandpool.controlplane.store.record import Record
from sandpool.kube.errors import RequestTooLarge, TooManyRequests
from sandpool.kube.outright import Grant, Granter
from sandpool.model import codec
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.metadata import NO_REVISION, Key
from sandpool.telemetry.log import logger

log = logger(__name__)


class JointWrite:
    def __init__(self, store: Store, acknowledged: Acknowledged, typed: Typed) -> None:
        self.granter: Granter | None = None
        self._store = store
        self._log = acknowledged
        self._typed = typed
        self._unheard: set[asyncio.Task[None]] = set()  # grants whose claimant went away before they were durable

    async def pause(self, namespace: str, claim: Document, tenant: str, parked: Shares) -> None:
        """Before a claim that was sent is created: many others may wait for its pool already. `parked` counts the requests that are kept so, which
        tenants share; whoever finds no room there is TooManyRequests. What is no claim is refused elsewhere."""
        pool = _awaited(namespace, claim)
        if self.granter is None or pool is None:
            return
        if parked.room(tenant) <= 0:
            if (busy := self.granter.no_pause(pool)) is not None:
                parked.refused += 1
                raise refusals.busy(CLAIMS, name_in(claim), busy.why, busy.retry_after)
            return
        seconds = self.granter.pause(pool)
        if seconds > 0.0:
            parked.take(tenant)
            try:
                await asyncio.sleep(seconds)
            finally:
                parked.take(tenant, -1)

    async def create(self, key: str, claim: Document, tenant: str, early: bool = False) -> Record | None:
        """The claim as it was created, once it has its sandbox; None, and nothing written, if it gets none this way: `claim` then has the annotations
        that it is to be created with. TooManyRequests if it may not wait for one either; StoreError if it cannot be made durable. `early`: before it can be read."""
        grant: Grant | None = None
        try:
            if self.granter is None:
                return None
            asked = codec.convert(CLAIMS, claim)
            grant = self.granter.grant(asked)
            if grant is None:
                if (busy := self.granter.busy(asked)) is not None:
                    raise refusals.busy(CLAIMS, asked.metadata.name, busy.why, busy.retry_after)
                _annotate(claim["metadata"], self.granter.noted(asked))
                return None
            (made, taken, bound), durable = self._submitted(key, claim, grant, tenant, early)
        except TooManyRequests:
            raise
        except Exception as error:  # whatever it is: the claim is created all the same, and nothing is kept for it
            if grant is not None:
                grant.dropped()
            log.info("claim not served outright", claim=key, error=f"{type(error).__name__}: {error}")
            return None
        grant.decided(made.revision, taken.revision, bound.revision)
        try:
            await durable
        except asyncio.CancelledError:
            task = asyncio.get_running_loop().create_task(self._settle(grant, bound, taken))
            self._unheard.add(task)
            task.add_done_callback(self._unheard.discard)
            raise
        except StoreError:
            grant.dropped()
            raise
        self._landed(grant, bound, taken)
        return made

    def _submitted(
        self, key: str, claim: Document, grant: Grant, tenant: str, early: bool
    ) -> tuple[tuple[Record, ...], asyncio.Future[None]]:
        """Raises if it cannot be, and then nothing is written."""
        namespace, name = grant.sandbox
        record = self._store.newest(key_of(SANDBOXES, namespace, name))
        if record is None or record.revision != grant.revision:
            raise refusals.conflict(SANDBOXES, name)
        old = decode(record)
        change = Change(namespace, name, record, old, patched(SANDBOXES, old, grant.transfer), "", patched=True)
        taken, _ = change.admitted(SANDBOXES, FieldValidation.IGNORE)
        metadata = dict(claim["metadata"])
        if grant.annotations:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **grant.annotations}
            if not annotations_fit(metadata["annotations"]):
                raise RequestTooLarge("there is no room for more annotations")
        served = {**claim, "metadata": metadata, "status": grant.status}
        created = key, NO_REVISION, claim
        moved, bound = (record.key, record.revision, taken), (key, NO_REVISION, served)
        return self._log.put_together(created, moved, bound, tenant=tenant, early=early)

    async def _settle(self, grant: Grant, bound: Record, taken: Record) -> None:
        """Nobody waits for the answer any more, but what was decided stands."""
        try:
            await self._store.durable(bound.revision)
        except StoreError:
            grant.dropped()
        else:
            self._landed(grant, bound, taken)

    def _landed(self, grant: Grant, bound: Record, taken: Record) -> None:
        typed = self._typed.object
        grant.landed(typed(CLAIMS, bound.value, bound.revision), typed(SANDBOXES, taken.value, taken.revision))


def _annotate(metadata: Document, more: Mapping[str, str]) -> None:
    """If there is room for it: nothing depends on it but a place in line."""
    annotations = {**(metadata.get("annotations") or {}), **more}
    if more and annotations_fit(annotations):
        metadata["annotations"] = annotations


def _awaited(namespace: str, claim: Document) -> Key | None:
    """The pool for whose members the claim would wait; None: for none, since it starts a sandbox of its own, or names none."""
    spec = claim.get("spec")
    if not isinstance(spec, dict) or spec.get("env") or spec.get("volumeClaimTemplates"):
        return None
    ref = spec.get("warmPoolRef")
    name = ref.get("name") if isinstance(ref, dict) else None
    return Key(namespace, name) if isinstance(name, str) else None


def name_in(body: Document) -> str:
    """Of an object that nobody has looked at yet."""
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
