"""A run as text: the trace of all steps, and the short story of the objects that an invariant is about."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sandpool.simulation.steps import Step

_LAST = 14
"""So many steps of each object concerned are told."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that happened besides writes: a fault, a crash, a violation."""

    at: float
    text: str


Line = Step | Remark


def told(line: Line) -> str:
    if isinstance(line, Remark):
        return f"{line.at:10.4f} -- {line.text}"
    meta = line.object.metadata
    return f"{line.at:10.4f} r{line.revision} {line.author}: {verb(line)} {line.resource.singular} {meta.key} {summary(line)}".rstrip()


def verb(step: Step) -> str:
    if step.old is None:
        return "creates"
    if step.new is None:
        return "removes"
    if step.new.metadata.leaving and not step.old.metadata.leaving:
        return "marks for deletion"
    return "changes"


def summary(step: Step) -> str:
    """What of it an invariant may ask about, where it differs from before."""
    if step.new is None:
        return ""
    old = {} if step.old is None else _facts(step.old)
    return ", ".join(f"{name} {value}" for name, value in _facts(step.new).items() if old.get(name) != value)


def _facts(obj: Any) -> dict[str, str]:
    meta = obj.metadata
    owner = meta.controller
    facts = {"owner": f"{owner.kind} {owner.name}" if owner else "nobody", "uid": meta.uid[-4:]}
    status = getattr(obj, "status", None)
    for condition in getattr(status, "conditions", ()):
        facts[condition.type] = " ".join(filter(None, (condition.status, condition.reason)))
    bound = getattr(status, "sandbox", None)
    if bound is not None:
        facts["bound to"] = bound.name
    for name in ("phase", "replicas", "ready_replicas", "updated_replicas"):
        if (value := getattr(status, name, "")) not in ("", 0):
            facts[name] = str(value)
    spec = getattr(obj, "spec", None)
    if (wanted := getattr(spec, "replicas", None)) is not None:
        facts["wants"] = str(wanted)
    if (reference := getattr(spec, "sandbox_template_ref", None)) is not None:
        facts["template"] = reference.name
    if node := getattr(spec, "node_name", ""):
        facts["node"] = node
    if meta.generation:
        facts["generation"] = str(meta.generation)
    return facts


def names_in(text: str) -> list[str]:
    """The objects that a violation names, as namespace/name."""
    return list(dict.fromkeys(re.findall(r"\b[a-z0-9-]+/[a-z0-9.-]+\b", text)))


def story_of(violations: Iterable[str], lines: Iterable[Line], told_by_controllers: Iterable[str]) -> str:
    """The violations, the last steps of the objects that the first ones name, and what the controllers saw and decided."""
    violations = list(violations)
    names = dict.fromkeys(name for violation in violations[:3] for name in names_in(violation))
    bare = {name.partition("/")[2] for name in names}
    mine = [line for line in lines if _concerns(line, names, bare)]
    parts = ["Violated:", *(f"  {violation}" for violation in violations[:10])]
    parts += ["", "What happened:", *(f"  {told(line)}" for line in mine[-_LAST * max(1, len(names)) :])]
    parts += ["", "What the controllers saw and decided:", *(f"  {entry}" for entry in told_by_controllers)]
    return "\n".join(parts) + "\n"


def _concerns(line: Line, names: dict[str, None], bare: set[str]) -> bool:
    if isinstance(line, Remark):
        return any(name in line.text for name in names) or line.text.endswith(" begins") or "crash" in line.text
    if str(line.object.metadata.key) in names:
        return True
    owner = line.object.metadata.controller
    return owner is not None and owner.name in bare
