"""Builds claims and reads their state. Pure: time and randomness are arguments; objects are plain JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from sandpool.kube.errors import Unreadable
from sandpool.model import times
from sandpool.sdk.answers import printable
from sandpool.sdk.api_paths import EXTENSIONS
from sandpool.sdk.errors import ClaimError, ClaimFailed, PoolNotFound

CREATED_BY = ("agents.x-k8s.io/created-by", "sandpool-sdk")
REQUESTED_AT = "agents.x-k8s.io/client-first-requested-at"
REQUEST = "sandpool.dev/request"
"""An annotation by which a client recognises its own claim, also when the response to its creation was lost."""

CLIENT = "sandpool.dev/client"
"""A label: which connection created a claim. A connection watches all of its claims with one watch."""

LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""For generated names: no vowels, so that no words come out, and no look-alikes."""
RANDOM_LETTERS = 12
LONGEST_NAME = 63  # a cold sandbox is named like its claim, and its name must be a label

EXPIRED = frozenset({"ClaimExpired", "SandboxExpired"})
POOL_MISSING = "WarmPoolNotFound"
TERMINAL = frozenset(
    {
        "TemplateNotFound",
        "InvalidMetadata",
        "EnvVarsInjectionRejected",
        "VolumeClaimTemplatesError",
        *EXPIRED,
        "InvalidConfiguration",
        "PodFailed",
        "PodSucceeded",
    }
)
"""Reasons after which waiting for a claim ends."""

Object = Mapping[str, Any]


class State(StrEnum):
    PENDING = "Pending"
    READY = "Ready"
    SUSPENDED = "Suspended"
    FAILED = "Failed"
    TERMINATING = "Terminating"


@dataclass(frozen=True, slots=True)
class SandboxInfo:
    """A claim and its current state."""

    name: str
    """The claim's name, which `attach` takes."""
    namespace: str
    pool: str
    state: State
    sandbox: str
    """Name of the bound Sandbox; empty if there is none yet."""
    reason: str = ""
    message: str = ""
    created: datetime | None = None
    expires: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    uid: str = ""
    restarts: int | None = None
    """How often containers of its pod were restarted, plus how often this handle saw its pod replaced. None if it was not looked up (in a
    list) or may not be read."""
    last_restart_reason: str = ""
    """Reason of the last restart, in one word: OOMKilled, Error, Completed, PodDeleted."""


def generated_name(pool: str, draw: int) -> str:
    """`draw` is a random number of 64 bits or more."""
    letters = []
    for _ in range(RANDOM_LETTERS):
        draw, at = divmod(draw, len(LETTERS))
        letters.append(LETTERS[at])
    stem = pool[: LONGEST_NAME - RANDOM_LETTERS - 1].rstrip("-.").replace(".", "-")
    return f"{stem}-{''.join(letters)}"


def shutdown_time(ttl: float | timedelta, now: datetime) -> str:
    """When a claim with this time to live ends, in whole seconds, never earlier than asked."""
    try:
        seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else float(ttl)
    except (TypeError, ValueError):  # "10m", for example
        seconds = math.nan
    if not math.isfinite(seconds) or seconds <= 0:
        raise ValueError(f"ttl must be a positive number of seconds or a timedelta, not {ttl!r}")
    try:
        end = now + timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError(f"ttl is too long: {ttl!r}") from None
    return times.seconds(end if end.microsecond == 0 else end.replace(microsecond=0) + timedelta(seconds=1))


def checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """A copy. TypeError for what cannot be a label."""
    asked: Any = labels  # without a type checker it may be anything
    if not isinstance(asked, Mapping):
        raise TypeError(f"labels is {type(asked).__name__}; give a mapping of names to values, both str")
    for name, value in asked.items():
        if not isinstance(name, str):
            raise TypeError(f"the name {name!r} in labels is {type(name).__name__}; names and values must be str")
        if not isinstance(value, str):
            kind = type(value).__name__
            raise TypeError(
                f"labels[{name!r}] is {value!r}, of type {kind}; values must be str, such as {str(value)!r}"
            )
    return dict(asked)


def claim_body(
    name: str,
    pool: str,
    labels: Mapping[str, str],
    ttl: float | timedelta | None,
    now: datetime,
    request: str,
    client: str,
) -> dict[str, Any]:
    spec: dict[str, Any] = {"warmPoolRef": {"name": pool}}
    if ttl is not None:
        spec["lifecycle"] = {"shutdownTime": shutdown_time(ttl, now), "shutdownPolicy": "Delete"}
    asked_at = now.astimezone(UTC).isoformat(timespec="microseconds")
    return {
        "apiVersion": EXTENSIONS,
        "kind": "SandboxClaim",
        "metadata": {
            "name": name,
            "labels": {**labels, CREATED_BY[0]: CREATED_BY[1], CLIENT: client},
            "annotations": {REQUESTED_AT: asked_at, REQUEST: request},
        },
        "spec": spec,
    }


def ours(claim: Object, request: str) -> bool:
    return (_metadata(claim).get("annotations") or {}).get(REQUEST) == request


def condition(subject: Object, kind: str) -> Object:
    """A condition of an object; empty if it has none of this type."""
    for one in (subject.get("status") or {}).get("conditions") or ():
        if one.get("type") == kind:
            found: Object = one
            return found
    return {}


def sandbox_name(claim: Object) -> str:
    bound = (claim.get("status") or {}).get("sandbox") or {}
    return str(bound.get("name") or bound.get("Name") or "")


def ready(claim: Object) -> bool:
    return condition(claim, "Ready").get("status") == "True" and bool(sandbox_name(claim))


def failure(claim: Object) -> ClaimError | None:
    """Why the claim will never be ready; None if it still may be. A missing pool has a class of its own."""
    metadata = _metadata(claim)
    key, name = f"{metadata.get('namespace')}/{metadata.get('name')}", metadata.get("name")
    for one in (claim.get("status") or {}).get("conditions") or ():
        if one.get("reason") == POOL_MISSING:
            return PoolNotFound(f"claim {key}: {_sentence(one)}", key)
    one = condition(claim, "Ready")
    reason = str(one.get("reason", ""))
    if one.get("status") == "False" and reason in TERMINAL:
        return ClaimFailed(f"claim {key}: {_sentence(one)}; `sandpool why claim/{name}` tells more", key, reason)
    return None


def waiting_for(claim: Object, pool: Object | None = None) -> str:
    """What a claim that is not ready waits for: from its condition or, before it has one, from its pool (None: not known).

    The controller writes a wait into a claim only after a while, so a claim without a condition may well be queued."""
    one = condition(claim, "Ready")
    if one:
        return _sentence(one)
    name = str(((claim.get("spec") or {}).get("warmPoolRef") or {}).get("name", ""))
    if pool is None:
        return f"it waits for a sandbox of pool {name!r}; there is no status yet"
    status = pool.get("status") or {}
    if not status:
        return f"no controller has observed its pool {name!r} yet: is one running?"
    wanted, there = (pool.get("spec") or {}).get("replicas", 1), status.get("readyReplicas") or 0
    if not wanted:
        return f"pool {name!r} keeps no sandboxes (replicas: 0), so one is being started for it"
    why = condition(pool, "Progressing")
    note = f" ({_sentence(why)})" if why and there != wanted else ""
    return f"it waits for a sandbox of pool {name!r}, which has {there} of {wanted} ready{note}"


def for_this(uid: str, *operations: dict[str, Any]) -> list[dict[str, Any]]:
    """A JSON patch of exactly this object: it fails on another one of the same name."""
    return [{"op": "test", "path": "/metadata/uid", "value": uid}, *operations]


def extension(claim: Object, end: str) -> list[dict[str, Any]]:
    """The patch that changes when a claim ends. The rest of its lifecycle stays."""
    lifecycle = {"shutdownPolicy": "Delete", **(claim["spec"].get("lifecycle") or {}), "shutdownTime": end}
    return for_this(_metadata(claim)["uid"], {"op": "add", "path": "/spec/lifecycle", "value": lifecycle})


def mode_reached(box: Object, mode: str, generation: int) -> bool:
    """Whether a Sandbox has reached its mode, according to a condition that observed that generation."""
    one = condition(box, "Suspended" if mode == "Suspended" else "Ready")
    return one.get("status") == "True" and int(one.get("observedGeneration", generation)) >= generation


def info_of(claim: Object) -> SandboxInfo:
    metadata, one = _metadata(claim), condition(claim, "Ready")
    spec = claim.get("spec") or {}
    status = claim.get("status") or {}
    return SandboxInfo(
        name=str(metadata.get("name", "")),
        namespace=str(metadata.get("namespace", "")),
        pool=str((spec.get("warmPoolRef") or {}).get("name", "")),
        state=_state(claim),
        sandbox=sandbox_name(claim),
        reason=str(one.get("reason", "")),
        message=printable(str(one.get("message", ""))),
        created=_time(metadata.get("creationTimestamp")),
        expires=_time((spec.get("lifecycle") or {}).get("shutdownTime")),
        labels=dict(metadata.get("labels") or {}),
        addresses=tuple((status.get("sandbox") or {}).get("podIPs") or ()),
        uid=str(metadata.get("uid", "")),
    )


def _state(claim: Object) -> State:
    one = condition(claim, "Ready")
    if _metadata(claim).get("deletionTimestamp"):
        return State.TERMINATING
    if one.get("status") == "True":
        return State.READY
    if one.get("reason") == "SandboxSuspended":
        return State.SUSPENDED
    return State.FAILED if failure(claim) is not None else State.PENDING


def _sentence(one: Object) -> str:
    message, reason = printable(str(one.get("message") or "")), printable(str(one.get("reason") or ""), 200)
    return f"{message} ({reason})" if message and reason else message or reason or "it has no message"


def checked(claim: dict[str, Any]) -> dict[str, Any]:
    """The same object, if it can be a claim; Unreadable if not."""
    metadata = claim.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("uid"), str):
        raise Unreadable("the server's answer is no claim: it has no uid; is this an API server?")
    return claim


def _metadata(subject: Object) -> Mapping[str, Any]:
    found: Mapping[str, Any] = subject.get("metadata") or {}
    return found


def _time(text: object) -> datetime | None:
    try:
        return times.parse(text) if isinstance(text, str) and text else None
    except times.TimeError:
        return None
