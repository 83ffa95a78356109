"""How much one pod may ask for. Kubernetes leaves that to the size of a request; here the node that serves everybody does the work.

The numbers are far beyond what pods have. They are documented in docs/reference/pods.md.
"""

from __future__ import annotations

from typing import Any

from sandpool.controlplane.admission import causes
from sandpool.controlplane.admission.kinds.rules import Body
from sandpool.kube.errors import Cause

CONTAINERS = 64  # with init containers
VOLUMES = 256
SOURCES = 64  # of a projected volume
PULL_SECRETS = 64
OF_CONTAINER = {"env": 4096, "envFrom": 256, "volumeMounts": 256, "ports": 1024}
RESOURCES = 64  # names in the limits of a container, or in its requests
_LISTS = ("containers", "initContainers")


def too_much(spec: Body, path: str = "spec") -> list[Cause]:
    """What of a new pod's spec is too much to be run on one machine."""
    found = [
        cause
        for name, most in (("volumes", VOLUMES), ("imagePullSecrets", PULL_SECRETS))
        for cause in _counted(f"{path}.{name}", spec.get(name), most)
    ]
    total = sum(len(_items(spec.get(name))) for name in _LISTS)
    if total > CONTAINERS:
        longest = max(_LISTS, key=lambda name: len(_items(spec.get(name))))
        return [*found, causes.too_many(f"{path}.{longest}", total, CONTAINERS)]
    for name in _LISTS:
        for index, container in enumerate(_items(spec.get(name))):
            if type(container) is dict:
                for field, most in OF_CONTAINER.items():
                    found += _counted(f"{path}.{name}[{index}].{field}", container.get(field), most)
                found += _resources(f"{path}.{name}[{index}].resources", container.get("resources"))
    for index, volume in enumerate(_items(spec.get("volumes"))[:VOLUMES]):
        projected = volume.get("projected") if type(volume) is dict else None
        if type(projected) is dict:
            found += _counted(f"{path}.volumes[{index}].projected.sources", projected.get("sources"), SOURCES)
    return found


def too_much_of_sandbox(spec: Any) -> list[Cause]:
    """The same of a new Sandbox, before anything is made for it."""
    if type(spec) is not dict:
        return []
    found = _counted("spec.volumeClaimTemplates", spec.get("volumeClaimTemplates"), VOLUMES)
    template = spec.get("podTemplate")
    inner = template.get("spec") if type(template) is dict else None
    return found + (too_much(inner, "spec.podTemplate.spec") if type(inner) is dict else [])


def _resources(path: str, resources: Any) -> list[Cause]:
    if type(resources) is not dict:
        return []
    for part in ("limits", "requests"):  # of which the second are completed by the first
        amounts = resources.get(part)
        if type(amounts) is dict and len(amounts) > RESOURCES:
            return [causes.too_many(f"{path}.{part}", len(amounts), RESOURCES)]
    return []


def _counted(path: str, value: Any, most: int) -> list[Cause]:
    count = len(_items(value))
    return [causes.too_many(path, count, most)] if count > most else []


def _items(value: Any) -> list[Any]:
    return value if type(value) is list else []
