"""The output of `sandpool why`: an object and its related objects, their conditions, Events and reconcile history, in order of time.

Pure: related objects in, text out; the time zone is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any
from urllib.parse import quote

from sandpool.kube.local_discovery import Running
from sandpool.model import labels, times
from sandpool.model.kinds import CLAIMS, EVENTS, PODS, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.resource import Resource
from sandpool.telemetry.reconcile_history import ASKED, TRIED, WROTE

Json = dict[str, Any]
Get = Callable[[str], Any]

KINDS: dict[str, Resource[Any]] = {"claim": CLAIMS, "sandbox": SANDBOXES, "pool": POOLS, "template": TEMPLATES}
CONTROLLERS = {**{word: word for word in KINDS}, "pod": "kubelet"}
"""The controller of each kind, whose reconcile history is shown."""
STORIES = "/sandpool/stories"
"""Below it: NAMESPACE/CONTROLLER/NAME."""
_RESOURCES: dict[str, Resource[Any]] = {**KINDS, "pod": PODS}


@dataclass(frozen=True, slots=True)
class RelatedObject:
    word: str  # claim, sandbox, pod, pool, template
    namespace: str
    name: str
    body: Json | None  # None: there is no such object now
    entries: tuple[Json, ...] = ()
    events: tuple[Json, ...] = ()

    @property
    def conditions(self) -> list[Json]:
        found: list[Json] = _at(self.body, "status", "conditions") or []
        return found

    @property
    def containers(self) -> list[Json]:
        """The container statuses of a pod; of other objects none."""
        if self.word != "pod":
            return []
        return [
            *(_at(self.body, "status", "initContainerStatuses") or ()),
            *(_at(self.body, "status", "containerStatuses") or ()),
        ]

    @property
    def ready(self) -> bool:
        return any(one.get("type") == "Ready" and one.get("status") == "True" for one in self.conditions)

    def __str__(self) -> str:
        return f"{self.word} {self.namespace}/{self.name}"


def word_of(kind: str) -> str | None:
    """`claim`, `claims`, `sandboxclaim`, `sandboxclaims.extensions.agents.x-k8s.io`: our name of the kind, or None."""
    asked = kind.lower()
    for word, resource in KINDS.items():
        if asked in (word, f"{word}s", resource.plural, resource.singular, resource.group_resource):
            return word
        if asked in resource.short_names:
            return word
    return None


def related_objects(get: Get, word: str, namespace: str, name: str) -> list[RelatedObject]:
    """The object first, then what it depends on. A pool is included in full only for a claim that still waits."""
    first = _related_object(get, word, namespace, name)
    related = [first]
    if word == "claim":
        related += _of_claim(get, first)
    elif word == "sandbox":
        related += _of_sandbox(get, first)
    elif word == "pool":
        template = _at(first.body, "spec", "sandboxTemplateRef", "name")
        related += [_related_object(get, "template", namespace, template)] if template else []
    return related


def _of_claim(get: Get, claim: RelatedObject) -> Iterator[RelatedObject]:
    sandbox = _sandbox_of(get, claim)
    if sandbox is not None:
        yield sandbox
        yield _pod_of(get, sandbox)
    pool = _at(claim.body, "spec", "warmPoolRef", "name")
    if pool:
        yield _related_object(get, "pool", claim.namespace, pool, full=not claim.ready)


def _sandbox_of(get: Get, claim: RelatedObject) -> RelatedObject | None:
    """The one that the claim names, or that has its name and is owned by it."""
    notes = _at(claim.body, "metadata", "annotations") or {}
    named = _at(claim.body, "status", "sandbox", "name") or notes.get(labels.SANDBOX_NAME)
    if named:
        return _related_object(get, "sandbox", claim.namespace, named)
    same = _related_object(get, "sandbox", claim.namespace, claim.name)
    uid = _at(claim.body, "metadata", "uid")
    owners = _at(same.body, "metadata", "ownerReferences") or []
    return same if any(owner.get("uid") == uid for owner in owners) else None


def _of_sandbox(get: Get, sandbox: RelatedObject) -> Iterator[RelatedObject]:
    yield _pod_of(get, sandbox)
    words = {resource.kind: word for word, resource in KINDS.items()}
    for owner in _at(sandbox.body, "metadata", "ownerReferences") or []:
        if owner.get("controller") and owner.get("kind") in words:
            yield _related_object(get, words[owner["kind"]], sandbox.namespace, owner["name"], full=False)


def _pod_of(get: Get, sandbox: RelatedObject) -> RelatedObject:
    notes = _at(sandbox.body, "metadata", "annotations") or {}
    return _related_object(get, "pod", sandbox.namespace, notes.get(labels.POD_NAME) or sandbox.name)


def _related_object(get: Get, word: str, namespace: str, name: str, *, full: bool = True) -> RelatedObject:
    space, called = quote(namespace, safe=""), quote(name, safe="")
    resource = _RESOURCES[word]
    body = get(resource.path(space, called))
    if not full:
        return RelatedObject(word, namespace, name, body)
    story = get(f"{STORIES}/{space}/{CONTROLLERS[word]}/{called}") or {}
    fields = quote(f"involvedObject.kind={resource.kind},involvedObject.name={name}", safe="")
    found = (get(f"{EVENTS.path(space)}?fieldSelector={fields}") or {}).get("items", [])
    uid = _at(body, "metadata", "uid")
    events = tuple(one for one in found if uid is None or _at(one, "involvedObject", "uid") in (uid, None))
    return RelatedObject(word, namespace, name, body, tuple(story.get("entries", ())), events)


def _at(body: Any, *path: str) -> Any:
    for part in path:
        if not isinstance(body, dict):
            return None
        body = body.get(part)
    return body


_CALLS = tuple(f"{word} " for word in (WROTE, TRIED, ASKED))
_LAST_MICROSECOND = 999_999


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry of the timeline."""

    when: str  # RFC 3339: when it began; whole seconds if that is all that is known
    who: str
    seen: str = ""  # what woke the controller
    decided: tuple[str, ...] = ()
    written: tuple[str, ...] = ()  # calls to the API server, failed ones and reads too
    outcome: str = ""
    seconds: float | None = None  # how long it took

    @property
    def moment(self) -> datetime:
        return times.parse(self.when)

    @property
    def order(self) -> datetime:
        """The time of an Event has whole seconds: it is sorted behind everything else of that second."""
        moment = self.moment
        return moment if "." in self.when else moment.replace(microsecond=_LAST_MICROSECOND)


def timeline(related_objects: Sequence[RelatedObject]) -> list[HistoryEntry]:
    """Everything that is known about the objects, oldest first."""
    entries = [
        one
        for related in related_objects
        for one in (*_reconciles(related, related_objects), *_events(related, related_objects))
    ]
    return sorted(entries, key=lambda one: one.order)


def document(related_objects: Sequence[RelatedObject], entries: Sequence[HistoryEntry]) -> Json:
    first = related_objects[0]
    return {
        "kind": first.word,
        "namespace": first.namespace,
        "name": first.name,
        "objects": [
            {"kind": one.word, "name": one.name, "found": one.body is not None, "conditions": one.conditions}
            for one in related_objects
        ],
        "story": [asdict(one) for one in entries],
    }


def text(related_objects: Sequence[RelatedObject], entries: Sequence[HistoryEntry], zone: tzinfo | None = None) -> str:
    """The timeline as text. `zone`: the time zone; None: the machine's."""
    lines = [*_objects(related_objects, zone), "", *_happenings(entries, zone)]
    return "".join(f"{_plain(line)}\n" for line in lines)


def _reconciles(related: RelatedObject, related_objects: Sequence[RelatedObject]) -> Iterator[HistoryEntry]:
    for entry in related.entries:
        notes = [note for note in entry["plan"].split("; ") if note]
        began = times.parse(entry["when"]) - timedelta(seconds=entry["seconds"])
        yield HistoryEntry(
            times.micro(began),
            _who(related, related_objects),
            entry["trigger"],
            tuple(note for note in notes if not note.startswith(_CALLS)),
            tuple(note for note in notes if note.startswith(_CALLS)),
            entry["outcome"],
            entry["seconds"],
        )


def _events(related: RelatedObject, related_objects: Sequence[RelatedObject]) -> Iterator[HistoryEntry]:
    for event in related.events:
        when = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
        if when:
            count = event.get("count") or 1
            often = f" ({count} times)" if count > 1 else ""
            said = f"{event.get('type', '')} {event.get('reason', '')}: {event.get('message', '')}{often}"
            yield HistoryEntry(when, f"event of {_who(related, related_objects)}", outcome=said)


def _who(related: RelatedObject, related_objects: Sequence[RelatedObject]) -> str:
    """Only the kind for the object of the command; others with their name."""
    return related.word if related is related_objects[0] else f"{related.word} {related.name}"


def _objects(related_objects: Sequence[RelatedObject], zone: tzinfo | None) -> Iterator[str]:
    for related in related_objects:
        if related.body is None:
            yield f"{related}: it does not exist now"
            continue
        marked = " (being deleted)" if related.body["metadata"].get("deletionTimestamp") else ""
        yield f"{related}{marked}"
        yield from (_condition(one, zone) for one in related.conditions)
        yield from (_container(one) for one in related.containers if _troubled(one))


def _troubled(container: Json) -> bool:
    """Whether it cannot start, has failed, or was restarted."""
    state = container.get("state") or {}
    waits = (state.get("waiting") or {}).get("reason") not in (None, "", "ContainerCreating", "PodInitializing")
    failed = (state.get("terminated") or {}).get("exitCode") not in (None, 0)
    return waits or failed or bool(container.get("restartCount"))


def _container(container: Json) -> str:
    """The state of a container, as the kubelet reports it."""
    state, before = container.get("state") or {}, (container.get("lastState") or {}).get("terminated")
    now = next(iter(state), "waiting")
    at = state.get(now) or {}
    words = [word for word in (at.get("reason"), at.get("message")) if word]
    line = f"  container {container.get('name', '')} {now}" + (f": {', '.join(words)}" if words else "")
    if count := container.get("restartCount"):
        line += f"; restarts: {count}"
    if before:
        line += f"; ended before with {before.get('exitCode', 0)} ({before.get('reason') or 'no reason'})"
    return line


def _condition(condition: Json, zone: tzinfo | None) -> str:
    since = condition.get("lastTransitionTime")
    shown = f" since {_local(times.parse(since), zone):%Y-%m-%d %H:%M:%S}" if since else ""
    words = [word for word in (condition.get("reason"), condition.get("message")) if word]
    return f"  {condition['type']} {condition['status']}{shown}" + (f": {', '.join(words)}" if words else "")


def _happenings(entries: Sequence[HistoryEntry], zone: tzinfo | None) -> Iterator[str]:
    width = max((len(one.who) for one in entries), default=0)
    day = ""
    for one in entries:
        moment = _local(one.moment, zone)
        if day != (today := f"{moment:%Y-%m-%d %Z}"):
            day = today
            yield day
        clock = f"{moment:%H:%M:%S}" + (f".{moment.microsecond // 1000:03d}" if "." in one.when else "    ")
        first, *others = _parts(one)
        yield f"{clock}  {one.who:<{width}}  {first}"
        yield from (" " * (len(clock) + width + 4) + part for part in others)


def _parts(one: HistoryEntry) -> Iterator[str]:
    if one.seen:
        yield f"woken by {one.seen.replace('+', ', ')}"
    yield from (f"decided: {decision}" for decision in one.decided)
    yield from one.written
    if one.seconds is None:
        yield one.outcome
    else:
        idle = one.outcome == "done" and not one.decided and not one.written
        yield f"{'nothing to do' if idle else one.outcome} ({one.seconds * 1e3:.1f} ms)"


def _plain(line: str) -> str:
    """Messages may come from tenants: removes control characters and line breaks."""
    return "".join(character if character.isprintable() else " " for character in line)


def _local(moment: datetime, zone: tzinfo | None) -> datetime:
    return moment.astimezone(zone)


def nothing_remembered(related_objects: Sequence[RelatedObject], running: Running) -> str:
    """The message for an empty history."""
    first = related_objects[0]
    if running.backend == "none":
        return f"there is no history of {first}: this cluster runs no controllers. Start it without `--backend none`."
    return (
        f"there is no history of {first}: no controller has looked at it since the cluster started at "
        f"{times.parse(running.started):%Y-%m-%d %H:%M:%S %Z}, or so many others came later that it was forgotten. Its "
        "conditions are shown above; any change of the object, a label for instance, is looked at again."
    )
