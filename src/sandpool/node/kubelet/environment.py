"""A container's environment: everything that it refers to looked up, `$(NAME)` put in. Pure.

Later entries win, env over envFrom. `$(NAME)` stands for what came before it; one that is not known stays as it is, and `$$`
is a dollar. Messages name objects and keys, never values.

A few variables that name each other can stand for more than any memory holds, so what they stand for is counted before it is made. So is what
is looked at and left out: a short pod can name a large object hundreds of times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sandpool.node.kubelet.contents import Contents
from sandpool.node.kubelet.downward import Fields, NoSuchField
from sandpool.node.kubelet.pods import NodeContainer, NodeEnvVar, NodePod
from sandpool.node.kubelet.references import CONFIG_ERROR, Kind, Reference, Unresolved
from sandpool.node.kubelet.sources import EnvFrom, KeyRef, ValueFrom

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
MOST = 1 << 20
"""Characters of all variables of a container, names included. The kernel takes hardly more."""
MOST_OF_POD = 4 << 20
"""The same of all containers of a pod."""
EACH = 32
"""Characters that a variable counts for besides, also one that is looked at and left out: the kernel and we keep it in a list."""


class TooLarge(Exception):
    """More text than a container's environment may have."""


class _TooLargeTogether(TooLarge):
    """More than those of a pod's containers may have together."""


@dataclass(slots=True)
class Allowance:
    """What is left for the variables of one pod, and of the container whose turn it is."""

    of_pod: int = MOST_OF_POD
    of_container: int = MOST

    def begin(self) -> None:
        self.of_container = MOST

    def take(self, size: int) -> None:
        size += EACH
        self.of_container -= size
        self.of_pod -= size
        if self.of_container < 0:
            raise TooLarge
        if self.of_pod < 0:
            raise _TooLargeTogether


def environment(
    pod: NodePod, container: NodeContainer, contents: Contents, fields: Fields, allowance: Allowance
) -> dict[str, str]:
    values: dict[str, str] = {}
    allowance.begin()
    try:
        for source in container.env_from:
            values.update(_all_of(pod, source, contents, allowance))
        for entry in container.env:
            text = _value(pod, container, entry, values, contents, fields, allowance)
            if text is not None:
                values[entry.name] = text
    except _TooLargeTogether:
        raise Unresolved(
            CONFIG_ERROR,
            f"container {container.name}: env: the variables of the pod's containers take more than {MOST_OF_POD} characters",
            container.name,
        ) from None
    except TooLarge:
        raise Unresolved(
            CONFIG_ERROR,
            f"env: its variables take more than {MOST} characters; mount what is large as a file",
            container.name,
        ) from None
    except NoSuchField as error:
        raise Unresolved(CONFIG_ERROR, str(error), container.name) from None
    except Unresolved as error:
        raise Unresolved(error.reason, error.message, container.name) from None
    return values


def _value(
    pod: NodePod,
    container: NodeContainer,
    entry: NodeEnvVar,
    values: Mapping[str, str],
    contents: Contents,
    fields: Fields,
    allowance: Allowance,
) -> str | None:
    source = entry.value_from
    if source is None:
        value = expand(entry.value, values)
    elif source.field_ref is not None:
        value = fields.value(source.field_ref.field_path)
    elif source.resource_field_ref is not None:
        value = fields.resource(container, source.resource_field_ref)
    else:
        return _of_object(pod, entry, source, contents, allowance)
    allowance.take(len(entry.name) + len(value))
    return value


def _of_object(
    pod: NodePod, entry: NodeEnvVar, source: ValueFrom, contents: Contents, allowance: Allowance
) -> str | None:
    """The value of one key; None if it may be missing and is."""
    found = contents.found
    if source.config_map_key_ref is not None:
        ref, kind = source.config_map_key_ref, "ConfigMap"
        config_map = found.config_maps.get(ref.name)
        stored = _key(pod, ref, kind, None if config_map is None else config_map.data)
    elif source.secret_key_ref is not None:
        ref, kind = source.secret_key_ref, "Secret"
        secret = found.secrets.get(ref.name)
        stored = _key(pod, ref, kind, None if secret is None else secret.data)
    else:
        raise Unresolved(
            CONFIG_ERROR, "valueFrom names no source that is known here; use a field, a ConfigMap or a Secret"
        )
    allowance.take(len(entry.name) + _size(kind, stored or ""))
    if stored is None:
        return None
    value = contents.secret_text(ref.name, ref.key) if kind == "Secret" else stored
    if "\0" in value:
        raise Unresolved(
            CONFIG_ERROR, f"env {entry.name}: the value holds a NUL byte, which no variable can; mount it as a file"
        )
    return value


def _key(pod: NodePod, ref: KeyRef, kind: str, data: Mapping[str, str] | None) -> str | None:
    if data is not None and ref.key in data:
        return data[ref.key]
    if ref.optional:
        return None
    if data is None:
        raise missing(pod, kind, ref.name)
    raise Unresolved(
        CONFIG_ERROR,
        f"couldn't find key {ref.key} in {kind} {pod.metadata.namespace}/{ref.name}; add the key, or make it optional",
    )


def _all_of(pod: NodePod, source: EnvFrom, contents: Contents, allowance: Allowance) -> Iterator[tuple[str, str]]:
    ref, kind, what = source.config_map_ref, "ConfigMap", Kind.CONFIG_MAP
    if ref is None and source.secret_ref is not None:
        ref, kind, what = source.secret_ref, "Secret", Kind.SECRET
    if ref is None:
        return
    entries = contents.entries(Reference(what, ref.name))
    if entries is None:
        if ref.optional:
            return
        raise missing(pod, kind, ref.name)
    for key, stored in entries:
        allowance.take(len(source.prefix) + len(key) + _size(kind, stored))
        value = contents.secret_text(ref.name, key) if kind == "Secret" else stored
        name = source.prefix + key
        if "=" not in name and "\0" not in name and "\0" not in value:
            yield name, value  # what cannot be a variable is left out, as in Kubernetes


def _size(kind: str, stored: str) -> int:
    """Of a value, before it is decoded."""
    return len(stored) * 3 // 4 if kind == "Secret" else len(stored)


def missing(pod: NodePod, kind: str, name: str, reason: str = CONFIG_ERROR) -> Unresolved:
    where = pod.metadata.namespace
    return Unresolved(reason, f'{kind.lower()} "{name}" not found; create it in namespace {where}, or make it optional')


def expand(text: str, values: Mapping[str, str]) -> str:
    """Puts in what `$(NAME)` stands for. Raises TooLarge."""
    if "$" not in text:
        return text
    end = text.rfind(")") + 1  # beyond it nothing is named, and each `$(` would be searched to its end for that
    grown = 0

    def value(found: re.Match[str]) -> str:
        nonlocal grown
        made = "$" if found[1] is None else values.get(found[1], found[0])
        grown += len(made) - len(found[0])
        if found.end() + grown > MOST:
            raise TooLarge
        return made

    made = _REFERENCE.sub(value, text[:end]) + text[end:].replace("$$", "$")
    if len(made) > MOST:
        raise TooLarge
    return made
