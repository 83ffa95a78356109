"""Creates a claim and waits until it is ready, or raises why it never will be. Whatever goes wrong, no claim is left behind.

A claim carries a random annotation, by which we recognise it even if the response to its creation was lost.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from sandpool.base.errors import SandpoolError
from sandpool.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    Refused,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    over_quota,
)
from sandpool.kube.retry import RetryPolicy, pause
from sandpool.sdk._async.claim_watch import ClaimWatch, Subscription
from sandpool.sdk._async.cluster import SHORTEST, Cluster, Object
from sandpool.sdk._async.transport import sleep, surely
from sandpool.sdk.api_paths import claims, pools
from sandpool.sdk.claims import checked, failure, ours, ready, waiting_for
from sandpool.sdk.deadline import after
from sandpool.sdk.errors import ClaimDeleted, ClaimFailed, ClaimTimeout, Denied, PoolNotFound, TimedOut

LOOK_FOR_POOL = 1.0
"""Seconds without a status after which the claim's pool is read. A claim that is served at once never costs this request."""
LAST_LOOK = 2.0
"""Seconds for reading the pool of a claim that timed out, for the message."""
ONCE = RetryPolicy(attempts=1)
PAUSES = (0.1, 0.5)  # before looking for a claim, or deleting it, once more


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What to claim, and how long to wait for it."""

    body: Object
    namespace: str
    name: str
    pool: str
    request: str
    timeout: float

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"


async def obtain(cluster: Cluster, wanted: ClaimRequest, watch: ClaimWatch) -> Object:
    """The claim, ready. `watch` watches all claims with this client's label."""
    deadline = after(wanted.timeout)
    with watch.subscribe(wanted.name) as subscription:
        claim = await _taken_in(cluster, wanted, deadline or 0.0)
        try:
            return await _become_ready(cluster, claim, wanted, subscription, deadline or 0.0)
        except BaseException as error:
            await _clean_up(cluster, wanted, claim, error)
            raise


async def give_back(cluster: Cluster, namespace: str, name: str, uid: str) -> None:
    """Deletes the claim if it is still this one; raises if that fails."""
    for wait in (*PAUSES, None):
        try:
            await cluster.delete(claims(namespace, name), uid=uid)
            return
        except (NotFound, Conflict):  # it is gone; another claim has its name now
            return
        except Unreachable:
            if wait is None:
                raise
            await sleep(wait)


async def wait_ready(cluster: Cluster, claim: Object, wanted: ClaimRequest, deadline: float) -> Object:
    """Waits until a claim that already exists is ready. Raises ClaimFailed, PoolNotFound, ClaimDeleted, or ClaimTimeout at the
    deadline."""
    watch = ClaimWatch(cluster.watching(claims(wanted.namespace), {"fieldSelector": f"metadata.name={wanted.name}"}))
    try:
        with watch.subscribe(wanted.name) as subscription:
            return await _become_ready(cluster, claim, wanted, subscription, deadline)
    finally:
        watch.close()


async def _become_ready(
    cluster: Cluster, claim: Object, wanted: ClaimRequest, subscription: Subscription, deadline: float
) -> Object:
    if await _judged(cluster, claim, wanted):
        return claim
    for until in (min(deadline, time.monotonic() + LOOK_FOR_POOL), deadline):
        claim, decided = await _followed(cluster, claim, wanted, subscription, until)
        if decided:
            return claim
        if until < deadline:
            await _check_pool(cluster, wanted)
            subscription.look()  # a claim that was deleted before the watch began causes no event
    pool = await _pool_now(cluster, wanted)
    raise ClaimTimeout(
        f"{wanted} is not ready after {wanted.timeout:g} s: {waiting_for(claim, pool)}; `sandpool why claim/{wanted.name}` tells more, or "
        "wait longer with timeout=",
        f"{wanted.namespace}/{wanted.name}",
    )


async def _pool_now(cluster: Cluster, wanted: ClaimRequest) -> Object | None:
    """The pool, if it can be read quickly: it is only for the text of an error."""
    try:
        return await cluster.get(pools(wanted.namespace, wanted.pool), timeout=LAST_LOOK)
    except SandpoolError:
        return None


async def _followed(
    cluster: Cluster, claim: Object, wanted: ClaimRequest, subscription: Subscription, until: float
) -> tuple[Object, bool]:
    """The claim when it is ready or at the deadline, and whether it is ready."""
    while True:
        try:
            event = await subscription.next(until)
        except TimedOut:
            return claim, False
        if event is None or event.object["metadata"].get("uid") != claim["metadata"]["uid"]:
            # Missed, or about another claim of this name: an older one, or one that replaced ours.
            claim = _still(await _present(cluster, wanted), claim, wanted)
        else:
            claim = _still(event.object, claim, wanted, deleted=event.type == "DELETED")
        if await _judged(cluster, claim, wanted):
            return claim, True


def _still(changed: Object, claim: Object, wanted: ClaimRequest, *, deleted: bool = False) -> Object:
    """The changed claim, if it is still the same one and not deleted."""
    metadata = changed["metadata"]
    if deleted or metadata["uid"] != claim["metadata"]["uid"] or metadata.get("deletionTimestamp"):
        key = f"{wanted.namespace}/{wanted.name}"
        raise ClaimDeleted(
            f"{wanted} was deleted while you waited for it; `sandpool why claim/{wanted.name}` tells more", key
        )
    return changed


async def _judged(cluster: Cluster, claim: Object, wanted: ClaimRequest) -> bool:
    if ready(claim):
        return True
    wrong = failure(claim)
    if isinstance(wrong, PoolNotFound):
        await _check_pool(cluster, wanted)  # the controller may not have observed a pool that was just created
    elif wrong is not None:
        raise wrong
    return False


async def _present(cluster: Cluster, wanted: ClaimRequest) -> Object:
    try:
        return checked(await cluster.get(claims(wanted.namespace, wanted.name)))
    except NotFound:
        raise ClaimDeleted(
            f"{wanted} was deleted while you waited for it", f"{wanted.namespace}/{wanted.name}"
        ) from None


async def _check_pool(cluster: Cluster, wanted: ClaimRequest) -> None:
    try:
        await cluster.get(pools(wanted.namespace, wanted.pool))
    except NotFound:
        raise PoolNotFound(
            f"{wanted}: there is no warm pool {wanted.pool!r} in namespace {wanted.namespace}; `sandpool get pools` lists the existing "
            f"ones, `sandpool pool create {wanted.pool}` creates one",
            f"{wanted.namespace}/{wanted.name}",
        ) from None
    except ApiError:
        return  # a user who may claim need not be allowed to read pools


async def _taken_in(cluster: Cluster, wanted: ClaimRequest, deadline: float) -> Object:
    """Creates the claim, again after each 429, when the server says. The wait can be cancelled."""
    tries = 0
    while True:
        tries += 1
        try:
            return await _create(cluster, wanted, max(SHORTEST, deadline - time.monotonic()))
        except TooManyRequests as busy:
            left = deadline - time.monotonic()
            wait = pause(RetryPolicy(attempts=tries + 1, budget=left), busy, tries, 0.0, os.urandom(1)[0] / 256)
            if wait is None:
                raise ClaimTimeout(
                    f"{wanted}: {busy.message}, and its timeout of {wanted.timeout:g} s is over before that; wait longer with timeout=",
                    f"{wanted.namespace}/{wanted.name}",
                ) from None
        await sleep(wait)


async def _create(cluster: Cluster, wanted: ClaimRequest, seconds: float) -> Object:
    """`seconds` is what is left of the caller's timeout: all tries together take no longer."""
    try:
        # The request completes even if the caller is cancelled: otherwise nobody knows whether there is a claim to delete.
        return checked(await surely(cluster.create(claims(wanted.namespace), wanted.body, seconds, ONCE)))
    except AlreadyExists:
        key = f"{wanted.namespace}/{wanted.name}"
        message = f"{wanted} exists already: choose another name, or use it with Sandbox.attach({wanted.name!r})"
        raise ClaimFailed(message, key, "AlreadyExists") from None
    except (Forbidden, Unauthorized) as error:
        if over_quota(error):
            message = f"{wanted}: {error.message}; release claims that you no longer need, or ask the administrator of the cluster for a higher limit"
            raise ClaimFailed(message, f"{wanted.namespace}/{wanted.name}", "QuotaExceeded") from None
        raise Denied(f"{wanted}: {error.message}; check the token, or ask the administrator of the cluster") from None
    except (ApiError, Refused):
        raise
    except BaseException as error:
        found = await _lost(cluster, wanted, error)
        if found is not None and isinstance(error, Unreachable) and not isinstance(error, TimedOut):
            return found
        if found is not None:
            await _clean_up(cluster, wanted, found, error)
        raise


async def _lost(cluster: Cluster, wanted: ClaimRequest, error: BaseException) -> Object | None:
    """The claim whose creation got no response, if it exists: the server may still be processing the request."""
    for wait in (*PAUSES, None):
        try:
            found = await surely(cluster.get(claims(wanted.namespace, wanted.name)))
            return found if ours(found, wanted.request) else None
        except NotFound:
            if wait is not None:
                await surely(sleep(wait))
        except SandpoolError as trouble:
            error.add_note(f"{wanted} may exist; `sandpool release {wanted.name}` makes sure ({trouble})")
            return None
    return None


async def _clean_up(cluster: Cluster, wanted: ClaimRequest, claim: Object, error: BaseException) -> None:
    try:
        await surely(give_back(cluster, wanted.namespace, wanted.name, claim["metadata"]["uid"]))
    except SandpoolError as trouble:
        error.add_note(f"{wanted} could not be deleted; `sandpool release {wanted.name}` does it ({trouble})")
