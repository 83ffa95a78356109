"""Storage that a claim adds to a blueprint. A refusal is final until the claim or the template changes."""

from __future__ import annotations

from collections.abc import Sequence

from sandpool.loop.errors import Terminal
from sandpool.model.reasons import Reason
from sandpool.model.sandbox import VolumeClaimTemplate
from sandpool.model.template import InjectionPolicy

Volumes = tuple[VolumeClaimTemplate, ...]


def with_volumes(ours: Volumes | None, wanted: Volumes, policy: str, template: str) -> Volumes | None:
    """The storage of that template with the claim's: after it, or in the place of what has the same name."""
    places = _places(ours or (), f"SandboxTemplate {template}: spec.volumeClaimTemplates")
    _places(wanted, "spec.volumeClaimTemplates")
    if not wanted:
        return ours
    if policy not in (InjectionPolicy.ALLOWED, InjectionPolicy.OVERRIDES):
        raise _refusal(
            f"spec.volumeClaimTemplates: SandboxTemplate {template} lets no claim add storage; "
            "leave it out or set its spec.volumeClaimTemplatesPolicy to Allowed"
        )
    merged = list(ours or ())
    for volume in wanted:
        name = volume.metadata.name
        if name not in places:
            merged.append(volume)
        elif policy == InjectionPolicy.OVERRIDES:
            merged[places[name]] = volume
        else:
            raise _refusal(
                f'spec.volumeClaimTemplates: SandboxTemplate {template} has "{name}" already; '
                "choose another name or set its spec.volumeClaimTemplatesPolicy to Overrides"
            )
    return tuple(merged)


def _places(volumes: Sequence[VolumeClaimTemplate], where: str) -> dict[str, int]:
    """Each name and its index, every one given and given once."""
    places: dict[str, int] = {}
    for index, volume in enumerate(volumes):
        name = volume.metadata.name
        if not name:
            raise _refusal(f"{where}[{index}].metadata.name is missing: every volume needs a name")
        if name in places:
            raise _refusal(f'{where}[{index}].metadata.name: "{name}" is used twice')
        places[name] = index
    return places


def _refusal(message: str) -> Terminal:
    return Terminal(Reason.VOLUME_CLAIM_TEMPLATES_ERROR, message)
