"""The first pools of a local cluster, so that the first claim needs no YAML: a hardened template and copies of it.

Existing objects are the user's: a template is never changed, and of a pool only the size, if it was requested by name. An interrupted setup is
completed by the next start.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from sandpool.kube.api import Api
from sandpool.kube.errors import AlreadyExists, ApiError, NotFound
from sandpool.model.kinds import POOLS, TEMPLATES
from sandpool.model.patches import merge_patch
from sandpool.telemetry.log import logger

log = logger(__name__)

NAMESPACE: Final = "default"
TEMPLATE: Final = "python"
USER: Final = 1000
HOME: Final = "/workspace"
ENVIRONMENT: Final = {
    "HOME": HOME,
    "PYTHONUNBUFFERED": "1",  # output is visible at once, also if the program is killed
    "PIP_BREAK_SYSTEM_PACKAGES": "1",  # the machine's packages are read-only: pip installs below HOME, whatever its distribution says
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


@dataclass(frozen=True, slots=True)
class FirstPools:
    sizes: Mapping[str, int] = field(default_factory=dict)  # by name; members each
    scale: bool = False  # also existing pools


NO_POOLS: Final = FirstPools()
STANDARD: Final = FirstPools({"python": 3})


async def make_pools(api: Api, wanted: FirstPools) -> None:
    """Creates the pools. Failures are logged and do not keep the cluster from starting."""
    for name, size in wanted.sizes.items():
        try:
            await _ensure(api, name, size, wanted.scale)
        except ApiError as error:
            log.warning("a pool could not be made ready", pool=f"{NAMESPACE}/{name}", members=size, error=str(error))


async def _ensure(api: Api, name: str, size: int, scale: bool) -> None:
    try:
        found = await api.get(POOLS, name, NAMESPACE)
    except NotFound:
        await _make(api, name, size)
        return
    if scale and found.spec.replicas != size:
        await api.patch(POOLS, name, merge_patch({"spec": {"replicas": size}}), NAMESPACE)


async def _make(api: Api, name: str, size: int) -> None:
    """The template first: until it exists, a pool would report TemplateNotFound."""
    with suppress(AlreadyExists):
        await api.create(TEMPLATES, template_body(), NAMESPACE)
    with suppress(AlreadyExists):
        await api.create(POOLS, pool_body(name, size), NAMESPACE)


def pool_body(name: str, size: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"replicas": size, "sandboxTemplateRef": {"name": TEMPLATE}}}


def template_body() -> dict[str, Any]:
    """The programs of this machine, for a non-root user with a working directory. Limits, network policy and DNS resolvers are the defaults of
    every template."""
    container = {
        "name": "main",
        "image": "host",
        "command": ["sleep", "infinity"],
        "workingDir": HOME,
        "env": [{"name": name, "value": value} for name, value in ENVIRONMENT.items()],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "workspace", "mountPath": HOME}],
    }
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "workspace", "emptyDir": {}}],
    }
    return {"metadata": {"name": TEMPLATE}, "spec": {"podTemplate": {"spec": pod}}}
