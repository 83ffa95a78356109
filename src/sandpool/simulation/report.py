"""A run as text: the trace of all steps, and a short report about the objects that a violation names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sandpool.simulation.steps import Step

_LAST = 14
"""The report shows this many steps of each object concerned."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that happened besides writes: a fault, a crash, a violation."""

    at: float
    text: str


Entry = Step | Remark


def described(entry: Entry) -> str:
    if isinstance(entry, Remark):
        return f"{entry.at:10.4f} -- {entry.text}"
    meta = entry.object.metadata
    return f"{entry.at:10.4f} r{entry.revision} {entry.author}: {verb(entry)} {entry.resource.singular} {meta.key} {summary(entry)}".rstrip()


def verb(step: Step) -> str:
    if step.old is None:
        return "creates"
    if step.new is None:
        return "removes"
    if step.new.metadata.leaving and not step.old.metadata.leaving:
        return "marks for deletion"
    return "changes"


def summary(step: Step) -> str:
    """The facts that invariants use, where they differ from before."""
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


def report_of(violations: Iterable[str], entries: Iterable[Entry], histories: Iterable[str]) -> str:
    """The violations, the last steps of the objects that the first ones name, and what the controllers saw and decided."""
    violations = list(violations)
    names = dict.fromkeys(name for violation in violations[:3] for name in names_in(violation))
    bare = {name.partition("/")[2] for name in names}
    mine = [entry for entry in entries if _concerns(entry, names, bare)]
    parts = ["Violated:", *(f"  {violation}" for violation in violations[:10])]
    parts += ["", "What happened:", *(f"  {described(entry)}" for entry in mine[-_LAST * max(1, len(names)) :])]
    parts += ["", "What the controllers saw and decided:", *(f"  {entry}" for entry in histories)]
    return "\n".join(parts) + "\n"


def _concerns(entry: Entry, names: dict[str, None], bare: set[str]) -> bool:
    if isinstance(entry, Remark):
        return any(name in entry.text for name in names) or entry.text.endswith(" begins") or "crash" in entry.text
    if str(entry.object.metadata.key) in names:
        return True
    owner = entry.object.metadata.controller
    return owner is not None and owner.name in bare
