"""Limits for containers that have none, and the requests that go with them. Values and pure functions.

Only absent values are filled in, resource by resource. A default never makes a valid spec invalid and never gives its author less than
requested: a resource is left alone if a request, or the size of an emptyDir, is above the default limit. A default limit always comes
with a request; without one, Kubernetes would use the limit as the request and reserve that much on a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sandpool.model.documents import Json
from sandpool.model.quantities import Quantity, QuantityError, parse

CPU, MEMORY, STORAGE = "cpu", "memory", "ephemeral-storage"
_RESOURCE_OF_MEDIUM = {None: STORAGE, "": STORAGE, "Memory": MEMORY}
_SMALLEST = {CPU: 10**6, MEMORY: 10**9, STORAGE: 10**9}
"""The smallest amounts, in nanos: a thousandth of a CPU, a byte."""
Amounts = tuple[tuple[str, Quantity], ...]
"""Resources and amounts, sorted by name."""


class AmountsError(ValueError):
    """The text is not a list of amounts; the message names the resource."""


@dataclass(frozen=True, slots=True)
class ContainerDefaults:
    """Default limits and requests. A default request is used only together with the default limit of its resource; if there is a limit but no
    request, the request is zero."""

    limits: Amounts = ()
    requests: Amounts = ()

    def __post_init__(self) -> None:
        most = dict(self.limits)
        for name, amount in self.requests:
            if name in most and amount > most[name]:
                raise AmountsError(f"{name}: the request {amount} is above the limit {most[name]}")

    def texts(self) -> dict[str, dict[str, str]]:
        parts = {"limits": self.limits, "requests": self.requests}
        return {part: {name: str(amount) for name, amount in amounts} for part, amounts in parts.items()}


def amounts(text: str) -> Amounts:
    """Parses text such as cpu=2,memory=2Gi. Empty text means no amounts."""
    found: dict[str, Quantity] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, sign, amount = (part.strip() for part in entry.partition("="))
        if name not in _SMALLEST:
            raise AmountsError(f"{name!r} is none of {', '.join(_SMALLEST)}")
        if not sign or name in found:
            raise AmountsError(f"{name}: say it once, with an amount")
        try:
            found[name] = parse(amount)
        except QuantityError:
            raise AmountsError(f"{name}: {amount!r} is not an amount") from None
        if found[name].nanos <= 0 or found[name].nanos % _SMALLEST[name]:
            raise AmountsError(f"{name}: {amount} is not a whole number of {'m' if name == CPU else 'bytes'} above 0")
    return tuple(sorted(found.items()))


NONE = ContainerDefaults()
"""Nothing is filled in."""
STANDARD_LIMITS = "cpu=2,memory=2Gi,ephemeral-storage=10Gi"
STANDARD_REQUESTS = "cpu=100m,memory=128Mi"
STANDARD = ContainerDefaults(amounts(STANDARD_LIMITS), amounts(STANDARD_REQUESTS))


def limited(spec: dict[str, Any], defaults: ContainerDefaults) -> dict[str, Any]:
    """The spec with defaults filled in; the same object if there is nothing to add. A pod with pod-level limits is left alone."""
    if not defaults.limits or spec.get("resources"):
        return spec
    lists = {field: spec[field] for field in ("initContainers", "containers") if type(spec.get(field)) is list}
    everyone = [one for containers in lists.values() for one in containers]
    beyond = {
        name for name, most in defaults.limits if any(_above(size, most) for size in _sizes(spec, everyone, name))
    }
    mine = ContainerDefaults(tuple(one for one in defaults.limits if one[0] not in beyond), defaults.requests)
    after = {field: [_filled(one, mine) for one in containers] for field, containers in lists.items()}
    return spec if after == lists else {**spec, **after}


def _sizes(spec: dict[str, Any], containers: list[Json], name: str) -> Iterator[Json]:
    """The requested amounts of a resource that all containers of a pod share: sizes of emptyDirs and, because a node counts a pod's storage as
    a whole, the storage of each container."""
    volumes = spec.get("volumes")
    for volume in volumes if type(volumes) is list else ():
        room = volume.get("emptyDir") if type(volume) is dict else None
        if type(room) is dict and _RESOURCE_OF_MEDIUM.get(room.get("medium")) == name:
            yield room.get("sizeLimit")
    if name == STORAGE:
        yield from (_part(one, "requests").get(name) for one in containers)


def _filled(container: Json, defaults: ContainerDefaults) -> Json:
    if not _readable(container):
        return container
    limits, requests, small = _part(container, "limits"), _part(container, "requests"), dict(defaults.requests)
    more = {
        name: most
        for name, most in defaults.limits
        if limits.get(name) is None and not _above(requests.get(name), most)
    }
    if not more:
        return container
    asked = {name: str(small.get(name, 0)) for name in more if requests.get(name) is None}
    full = {"limits": {**limits, **{name: str(most) for name, most in more.items()}}}
    if asked:
        full["requests"] = {**requests, **asked}
    return {**container, "resources": {**(container.get("resources") or {}), **full}}


def _readable(container: Json) -> bool:
    """Whether this is a container with well-formed resources. Anything else is left for the API server to refuse."""
    if type(container) is not dict or type(resources := container.get("resources") or {}) is not dict:
        return False
    return all(type(resources.get(part) or {}) is dict for part in ("limits", "requests"))


def _part(container: Json, part: str) -> dict[str, Json]:
    resources = container.get("resources") if type(container) is dict else None
    found = resources.get(part) if type(resources) is dict else None
    return found if type(found) is dict else {}


def _above(amount: Json, most: Quantity) -> bool:
    """Whether the amount exceeds `most`. Anything that is not an amount counts as above: the API server will report it."""
    if amount is None:
        return False
    if type(amount) not in (str, int, float):
        return True
    try:
        return parse(amount) > most
    except QuantityError:
        return True
