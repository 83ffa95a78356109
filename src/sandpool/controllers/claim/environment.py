"""Variables that a claim adds to a blueprint. A refusal is final until the claim or the template changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandpool.loop.errors import Terminal
from sandpool.model.claim import EnvVar
from sandpool.model.reasons import Reason
from sandpool.model.template import InjectionPolicy

PodSpec = dict[str, Any]
Container = dict[str, Any]
_LISTS = ("initContainers", "containers")


def with_environment(spec: PodSpec, wanted: Sequence[EnvVar], policy: str, template: str) -> PodSpec:
    """The pod spec of that template with the variables in place. What is not touched is shared with the old one, never copied."""
    if not wanted:
        return spec
    if policy not in (InjectionPolicy.ALLOWED, InjectionPolicy.OVERRIDES):
        raise _refusal(
            f'spec.env["{wanted[0].name}"]: SandboxTemplate {template} lets no claim set variables; '
            "leave them out or set its spec.envVarsInjectionPolicy to Allowed"
        )
    targets = _targets(spec, wanted, template)
    changed = dict(spec)
    for field in _LISTS:
        containers: list[Container] = spec.get(field) or []
        if any(container["name"] in targets for container in containers):
            changed[field] = [_inject(one, targets.get(one["name"], ()), policy, template) for one in containers]
    return changed


def _targets(spec: PodSpec, wanted: Sequence[EnvVar], template: str) -> dict[str, list[EnvVar]]:
    """Who gets what: named targets first, then what goes to the first container by default."""
    names = [container["name"] for field in _LISTS for container in spec.get(field) or ()]
    first = next((container["name"] for container in spec.get("containers") or ()), "")
    targets: dict[str, list[EnvVar]] = {}
    for variable in sorted(wanted, key=lambda one: not one.container_name):
        target = variable.container_name or first
        if target not in names:
            raise _refusal(
                f'spec.env["{variable.name}"]: SandboxTemplate {template} has no container "{target}"; '
                f"it has {', '.join(names)}"
            )
        targets.setdefault(target, []).append(variable)
    return targets


def _inject(container: Container, variables: Sequence[EnvVar], policy: str, template: str) -> Container:
    if not variables:
        return container
    name = container["name"]
    if policy == InjectionPolicy.ALLOWED and container.get("envFrom"):
        raise _refusal(
            f'spec.env["{variables[0].name}"]: container "{name}" has envFrom, which may hold a variable of this name; '
            f"choose another container, or set spec.envVarsInjectionPolicy of SandboxTemplate {template} to Overrides"
        )
    env: list[dict[str, Any]] = list(container.get("env") or ())
    at = {entry["name"]: index for index, entry in enumerate(env)}
    for variable in variables:
        entry = {"name": variable.name, "value": variable.value}
        if variable.name not in at:
            at[variable.name] = len(env)
            env.append(entry)
        elif policy == InjectionPolicy.OVERRIDES:
            env[at[variable.name]] = entry
        else:
            raise _refusal(
                f'spec.env["{variable.name}"]: container "{name}" has this variable already; '
                f"choose another name or set spec.envVarsInjectionPolicy of SandboxTemplate {template} to Overrides"
            )
    return {**container, "env": env}


def _refusal(message: str) -> Terminal:
    return Terminal(Reason.ENV_VARS_INJECTION_REJECTED, message)
