"""What there is to tell about an object: itself, those that it depends on, and of each what is remembered and reported.

A claim leads to its sandbox and its pool, a sandbox to its pod and to whoever owns it, a pool to its template. `Get` is how the
cluster is asked: a path in, the JSON out, None where nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from sandpool.model import labels
from sandpool.model.kinds import CLAIMS, EVENTS, PODS, POOLS, SANDBOXES, TEMPLATES
from sandpool.model.resource import Resource

Json = dict[str, Any]
Get = Callable[[str], Any]

KINDS: dict[str, Resource[Any]] = {"claim": CLAIMS, "sandbox": SANDBOXES, "pool": POOLS, "template": TEMPLATES}
CONTROLLERS = {**{word: word for word in KINDS}, "pod": "kubelet"}
"""Who writes the story of what."""
STORIES = "/sandpool/stories"
"""Below it: NAMESPACE/CONTROLLER/NAME."""
_RESOURCES: dict[str, Resource[Any]] = {**KINDS, "pod": PODS}


@dataclass(frozen=True, slots=True)
class Chapter:
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
        """Of a pod: how each of its containers is; of other objects none."""
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
    """`claim`, `claims`, `sandboxclaim`, `sandboxclaims.extensions.agents.x-k8s.io`: the word that we use, or None."""
    asked = kind.lower()
    for word, resource in KINDS.items():
        if asked in (word, f"{word}s", resource.plural, resource.singular, resource.group_resource):
            return word
        if asked in resource.short_names:
            return word
    return None


def chapters(get: Get, word: str, namespace: str, name: str) -> list[Chapter]:
    """The object first, then what it depends on. A pool is told in full only to a claim that still waits for it."""
    first = _chapter(get, word, namespace, name)
    told = [first]
    if word == "claim":
        told += _of_claim(get, first)
    elif word == "sandbox":
        told += _of_sandbox(get, first)
    elif word == "pool":
        template = _at(first.body, "spec", "sandboxTemplateRef", "name")
        told += [_chapter(get, "template", namespace, template)] if template else []
    return told


def _of_claim(get: Get, claim: Chapter) -> Iterator[Chapter]:
    sandbox = _sandbox_of(get, claim)
    if sandbox is not None:
        yield sandbox
        yield _pod_of(get, sandbox)
    pool = _at(claim.body, "spec", "warmPoolRef", "name")
    if pool:
        yield _chapter(get, "pool", claim.namespace, pool, full=not claim.ready)


def _sandbox_of(get: Get, claim: Chapter) -> Chapter | None:
    """The one that the claim names, or that has its name and is owned by it."""
    notes = _at(claim.body, "metadata", "annotations") or {}
    named = _at(claim.body, "status", "sandbox", "name") or notes.get(labels.SANDBOX_NAME)
    if named:
        return _chapter(get, "sandbox", claim.namespace, named)
    same = _chapter(get, "sandbox", claim.namespace, claim.name)
    uid = _at(claim.body, "metadata", "uid")
    owners = _at(same.body, "metadata", "ownerReferences") or []
    return same if any(owner.get("uid") == uid for owner in owners) else None


def _of_sandbox(get: Get, sandbox: Chapter) -> Iterator[Chapter]:
    yield _pod_of(get, sandbox)
    words = {resource.kind: word for word, resource in KINDS.items()}
    for owner in _at(sandbox.body, "metadata", "ownerReferences") or []:
        if owner.get("controller") and owner.get("kind") in words:
            yield _chapter(get, words[owner["kind"]], sandbox.namespace, owner["name"], full=False)


def _pod_of(get: Get, sandbox: Chapter) -> Chapter:
    notes = _at(sandbox.body, "metadata", "annotations") or {}
    return _chapter(get, "pod", sandbox.namespace, notes.get(labels.POD_NAME) or sandbox.name)


def _chapter(get: Get, word: str, namespace: str, name: str, *, full: bool = True) -> Chapter:
    space, called = quote(namespace, safe=""), quote(name, safe="")
    resource = _RESOURCES[word]
    body = get(resource.path(space, called))
    if not full:
        return Chapter(word, namespace, name, body)
    story = get(f"{STORIES}/{space}/{CONTROLLERS[word]}/{called}") or {}
    fields = quote(f"involvedObject.kind={resource.kind},involvedObject.name={name}", safe="")
    found = (get(f"{EVENTS.path(space)}?fieldSelector={fields}") or {}).get("items", [])
    uid = _at(body, "metadata", "uid")
    events = tuple(one for one in found if uid is None or _at(one, "involvedObject", "uid") in (uid, None))
    return Chapter(word, namespace, name, body, tuple(story.get("entries", ())), events)


def _at(body: Any, *path: str) -> Any:
    for part in path:
        if not isinstance(body, dict):
            return None
        body = body.get(part)
    return body
