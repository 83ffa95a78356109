"""From a wish to a claim that is ready, or to the reason why it never will be. Whatever goes wrong, no claim is left behind.

A claim carries a random word, so that one whose creation was acknowledged to nobody is still known as ours.
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
from sandpool.sdk._async.cluster import SHORTEST, Cluster, Object
from sandpool.sdk._async.news import Letters, News
from sandpool.sdk._async.transport import sleep, surely
from sandpool.sdk.api_paths import claims, pools
from sandpool.sdk.claims import checked, failure, ours, ready, waiting_for
from sandpool.sdk.deadline import after
from sandpool.sdk.errors import ClaimDeleted, ClaimFailed, ClaimTimeout, Denied, PoolNotFound, TimedOut

LOOK_FOR_POOL = 1.0
"""Seconds after which a claim that nobody answered is asked about its pool. A claim that is served never pays for it."""
LAST_LOOK = 2.0
"""Seconds for a look at the pool of a claim whose time is up, for the message."""
ONCE = RetryPolicy(attempts=1)
PAUSES = (0.1, 0.5)  # before a claim is looked for, or tried to be deleted, again


@dataclass(frozen=True, slots=True)
class Wish:
    body: Object
    namespace: str
    name: str
    pool: str
    request: str
    timeout: float

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"


async def obtain(cluster: Cluster, wish: Wish, news: News) -> Object:
    """The claim, ready. `news` is of all claims that carry its mark."""
    deadline = after(wish.timeout)
    with news.of(wish.name) as letters:
        claim = await _taken_in(cluster, wish, deadline or 0.0)
        try:
            return await _become_ready(cluster, claim, wish, letters, deadline or 0.0)
        except BaseException as error:
            await _clean_up(cluster, wish, claim, error)
            raise


async def give_back(cluster: Cluster, namespace: str, name: str, uid: str) -> None:
    """Deletes the claim if it is still this one; raises if that could not be done."""
    for wait in (*PAUSES, None):
        try:
            await cluster.delete(claims(namespace, name), uid=uid)
            return
        except (NotFound, Conflict):  # it is gone; what has its name now is somebody else's
            return
        except Unreachable:
            if wait is None:
                raise
            await sleep(wait)


async def wait_ready(cluster: Cluster, claim: Object, wish: Wish, deadline: float) -> Object:
    """Until a claim that somebody else made is ready. Raises ClaimFailed, PoolNotFound, ClaimDeleted, or ClaimTimeout at the
    deadline."""
    news = News(cluster.watching(claims(wish.namespace), {"fieldSelector": f"metadata.name={wish.name}"}))
    try:
        with news.of(wish.name) as letters:
            return await _become_ready(cluster, claim, wish, letters, deadline)
    finally:
        news.close()


async def _become_ready(cluster: Cluster, claim: Object, wish: Wish, letters: Letters, deadline: float) -> Object:
    if await _judged(cluster, claim, wish):
        return claim
    for until in (min(deadline, time.monotonic() + LOOK_FOR_POOL), deadline):
        claim, decided = await _followed(cluster, claim, wish, letters, until)
        if decided:
            return claim
        if until < deadline:
            await _check_pool(cluster, wish)
            letters.look()  # what was deleted before the watch began is never told of
    pool = await _pool_now(cluster, wish)
    raise ClaimTimeout(
        f"{wish} is not ready after {wish.timeout:g} s: {waiting_for(claim, pool)}; `sandpool why claim/{wish.name}` tells more, or "
        "wait longer with timeout=",
        f"{wish.namespace}/{wish.name}",
    )


async def _pool_now(cluster: Cluster, wish: Wish) -> Object | None:
    """The pool, if it can be read in a moment: nobody waits longer for the words of an error."""
    try:
        return await cluster.get(pools(wish.namespace, wish.pool), timeout=LAST_LOOK)
    except SandpoolError:
        return None


async def _followed(cluster: Cluster, claim: Object, wish: Wish, letters: Letters, until: float) -> tuple[Object, bool]:
    """The claim as it is when it is ready, or then; and whether it is ready."""
    while True:
        try:
            event = await letters.next(until)
        except TimedOut:
            return claim, False
        if event is None or event.object["metadata"].get("uid") != claim["metadata"]["uid"]:
            # Missed, or about another claim of this name: an older one, or one that has taken the place of ours.
            claim = _still(await _present(cluster, wish), claim, wish)
        else:
            claim = _still(event.object, claim, wish, deleted=event.type == "DELETED")
        if await _judged(cluster, claim, wish):
            return claim, True


def _still(changed: Object, claim: Object, wish: Wish, *, deleted: bool = False) -> Object:
    """The claim after a change, if it is the same one and goes on."""
    metadata = changed["metadata"]
    if deleted or metadata["uid"] != claim["metadata"]["uid"] or metadata.get("deletionTimestamp"):
        key = f"{wish.namespace}/{wish.name}"
        raise ClaimDeleted(
            f"{wish} was deleted while it was waited for; `sandpool why claim/{wish.name}` tells more", key
        )
    return changed


async def _judged(cluster: Cluster, claim: Object, wish: Wish) -> bool:
    if ready(claim):
        return True
    wrong = failure(claim)
    if isinstance(wrong, PoolNotFound):
        await _check_pool(cluster, wish)  # a controller may be a moment behind somebody who has just made the pool
    elif wrong is not None:
        raise wrong
    return False


async def _present(cluster: Cluster, wish: Wish) -> Object:
    try:
        return checked(await cluster.get(claims(wish.namespace, wish.name)))
    except NotFound:
        raise ClaimDeleted(f"{wish} was deleted while it was waited for", f"{wish.namespace}/{wish.name}") from None


async def _check_pool(cluster: Cluster, wish: Wish) -> None:
    try:
        await cluster.get(pools(wish.namespace, wish.pool))
    except NotFound:
        raise PoolNotFound(
            f"{wish}: there is no warm pool {wish.pool!r} in namespace {wish.namespace}; `sandpool get pools` lists those there "
            f"are, `sandpool pool create {wish.pool}` makes one",
            f"{wish.namespace}/{wish.name}",
        ) from None
    except ApiError:
        return  # whoever may claim need not be allowed to look


async def _taken_in(cluster: Cluster, wish: Wish, deadline: float) -> Object:
    """Created, when the server is not too busy for it any more: it says when to come back, and that can be cancelled."""
    tries = 0
    while True:
        tries += 1
        try:
            return await _create(cluster, wish, max(SHORTEST, deadline - time.monotonic()))
        except TooManyRequests as busy:
            left = deadline - time.monotonic()
            wait = pause(RetryPolicy(attempts=tries + 1, budget=left), busy, tries, 0.0, os.urandom(1)[0] / 256)
            if wait is None:
                raise ClaimTimeout(
                    f"{wish}: {busy.message}, and its timeout of {wish.timeout:g} s is over before that; wait longer with timeout=",
                    f"{wish.namespace}/{wish.name}",
                ) from None
        await sleep(wait)


async def _create(cluster: Cluster, wish: Wish, seconds: float) -> Object:
    """`seconds` is what is left of the caller's timeout: all tries together take no longer."""
    try:
        # It ends even if this is cancelled: only then can be told whether there is a claim to delete.
        return checked(await surely(cluster.create(claims(wish.namespace), wish.body, seconds, ONCE)))
    except AlreadyExists:
        key = f"{wish.namespace}/{wish.name}"
        message = f"{wish} exists already: choose another name, or use it with Sandbox.attach({wish.name!r})"
        raise ClaimFailed(message, key, "AlreadyExists") from None
    except (Forbidden, Unauthorized) as error:
        if over_quota(error):
            message = (
                f"{wish}: {error.message}; delete claims that are done with, or ask whoever runs the cluster for more"
            )
            raise ClaimFailed(message, f"{wish.namespace}/{wish.name}", "QuotaExceeded") from None
        raise Denied(f"{wish}: {error.message}; check the token, or ask whoever runs the cluster") from None
    except (ApiError, Refused):
        raise
    except BaseException as error:
        found = await _lost(cluster, wish, error)
        if found is not None and isinstance(error, Unreachable) and not isinstance(error, TimedOut):
            return found
        if found is not None:
            await _clean_up(cluster, wish, found, error)
        raise


async def _lost(cluster: Cluster, wish: Wish, error: BaseException) -> Object | None:
    """The claim whose creation got no answer, if it was made: a server may still be at it when nobody waits any more."""
    for wait in (*PAUSES, None):
        try:
            found = await surely(cluster.get(claims(wish.namespace, wish.name)))
            return found if ours(found, wish.request) else None
        except NotFound:
            if wait is not None:
                await surely(sleep(wait))
        except SandpoolError as trouble:
            error.add_note(f"{wish} may exist; `sandpool release {wish.name}` makes sure ({trouble})")
            return None
    return None


async def _clean_up(cluster: Cluster, wish: Wish, claim: Object, error: BaseException) -> None:
    try:
        await surely(give_back(cluster, wish.namespace, wish.name, claim["metadata"]["uid"]))
    except SandpoolError as trouble:
        error.add_note(f"{wish} could not be deleted; `sandpool release {wish.name}` does it ({trouble})")
