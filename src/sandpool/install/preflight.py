"""Checks before a controller or a router starts: does the server answer, serve our kinds, and grant the permissions?

All problems are reported at once, in one error that names each of them and the next step. The check costs one list per kind and one
SelfSubjectAccessReview per permission.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sandpool.base.errors import SandpoolError
from sandpool.install.rules import CORE, EXTENSIONS, OWN, PLACES, Rule
from sandpool.kube.api import Api
from sandpool.kube.config import Config
from sandpool.kube.errors import Forbidden, NotFound, Unauthorized, Unreachable
from sandpool.kube.expired import expired_credential
from sandpool.model.kinds import OURS, SANDBOXES
from sandpool.model.metadata import RawObject
from sandpool.model.resource import Resource

CRDS: Resource[RawObject] = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    RawObject,
    namespaced=False,
)
REVIEWS: Resource[RawObject] = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", RawObject, namespaced=False
)
APPLY_CRDS = "`sandpool crds | kubectl apply --server-side -f -`"
GRANT = "`sandpool install --dry-run` prints the roles that it needs"
MIGRATE = "docs/how-to/replace-another-controller.md says how to rewrite them"


class CannotStart(SandpoolError):
    """The cluster lacks something; the message says what, and the next step."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One permission: a rule's verb, in one namespace, or in all of them if it is empty."""

    rule: Rule
    verb: str
    namespace: str
    name: str = ""

    @property
    def what(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        group = f".{self.rule.group}" if self.rule.group else ""
        resource, slash, subresource = self.rule.resource.partition("/")
        return f"{resource}{group}{slash}{subresource}{where}"

    def body(self) -> dict[str, Any]:
        resource, _, subresource = self.rule.resource.partition("/")
        attributes = {
            "group": self.rule.group,
            "resource": resource,
            "subresource": subresource,
            "verb": self.verb,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {
            "apiVersion": REVIEWS.api_version,
            "kind": REVIEWS.kind,
            "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
        }


def needed(namespaces: Sequence[str], lease_namespace: str, *, extensions: bool) -> Iterator[Asked]:
    """The permissions of a controller. No `namespaces` means all. `lease_namespace` is empty without leader election."""
    for rule in (*CORE, *(EXTENSIONS if extensions else ())):
        for namespace in namespaces or ("",):
            yield from (Asked(rule, verb, namespace) for verb in rule.verbs)
    for rule in PLACES if extensions else ():
        yield from (Asked(rule, verb, "") for verb in rule.verbs)
    for rule in OWN if lease_namespace else ():
        yield from (Asked(rule, verb, lease_namespace, (*rule.names, "")[0]) for verb in rule.verbs)


def in_words(asked: Sequence[Asked]) -> str:
    """`get/list pods, patch leases in namespace x`"""
    verbs: dict[str, list[str]] = {}
    for each in asked:
        verbs.setdefault(each.what, []).append(each.verb)
    return ", ".join(f"{'/'.join(found)} {what}" for what, found in verbs.items())


class Preflight:
    def __init__(self, api: Api, config: Config) -> None:
        self._api = api
        self._config = config

    async def check(
        self, namespaces: Sequence[str], lease_namespace: str, now: datetime, *, extensions: bool = True
    ) -> None:
        """What a controller needs. Raises CannotStart."""
        asked = list(needed(namespaces, lease_namespace, extensions=extensions))
        await self.check_all(OURS if extensions else (SANDBOXES,), asked, namespaces, now)

    async def check_all(
        self, kinds: Sequence[Resource[Any]], asked: Sequence[Asked], namespaces: Sequence[str], now: datetime
    ) -> None:
        """Checks that these kinds are served and these permissions granted. Raises CannotStart."""
        try:
            wrong = [problem for kind in kinds for problem in await self._served(kind, (*namespaces, "")[0])]
            refused = [each for each, may in zip(asked, await self._may(asked), strict=True) if not may]
        except Unauthorized as error:
            raise CannotStart(self._refused(error, now)) from error
        except Unreachable as error:
            raise CannotStart(f"{error} (as {self._config.source} says)") from error
        if refused:
            wrong.append(f"this identity may not {in_words(refused)}; {GRANT}")
        if wrong:
            raise CannotStart("; ".join(wrong))

    def _refused(self, error: Unauthorized, now: datetime) -> str:
        server, source = self._config.cluster.server, self._config.source
        why = expired_credential(self._config.user, now)
        hint = f"{why}; renew it" if why else "check the token or certificate"
        return f"{server} does not accept who we are ({error}): {hint} in {source}"

    async def _served(self, kind: Resource[Any], namespace: str) -> list[str]:
        """The problems of one kind: whether it is served, and how it is stored."""
        name = kind.group_resource
        try:
            await self._api.list(kind, namespace, limit=1)
            served = True
        except NotFound:
            served = False
        except Forbidden:
            served = True  # reported with the permissions
        try:
            definition = await self._api.get(CRDS, name)
        except NotFound:
            return [] if served else [f"the CustomResourceDefinition {name} is missing; apply it: {APPLY_CRDS}"]
        except Forbidden:
            return [] if served else [f"{name} of {kind.version} is not served; apply its definition: {APPLY_CRDS}"]
        return list(defects(definition.body, kind.version))

    async def _may(self, asked: Sequence[Asked]) -> list[bool]:
        answers = await asyncio.gather(*(self._api.create(REVIEWS, each.body()) for each in asked))
        return [bool((answer.body.get("status") or {}).get("allowed")) for answer in answers]


def defects(definition: dict[str, Any], version: str) -> Iterator[str]:
    """Why an existing CustomResourceDefinition cannot be used."""
    name = definition["metadata"]["name"]
    versions = {each["name"]: each for each in definition["spec"]["versions"]}
    if not versions.get(version, {}).get("served"):
        served = ", ".join(name for name, each in versions.items() if each.get("served")) or "nothing"
        yield f"the CustomResourceDefinition {name} serves {served}, not {version}; apply ours: {APPLY_CRDS}"
        return
    stored = [each for each in definition.get("status", {}).get("storedVersions", ()) if each != version]
    if stored:
        yield (
            f"the CustomResourceDefinition {name} has {', '.join(stored)} among its status.storedVersions: objects may "
            f"be stored in a version that this program cannot read; {MIGRATE}"
        )
