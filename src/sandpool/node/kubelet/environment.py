"""Builds a container's environment: resolves all references and expands `$(NAME)`. Pure.

Later entries win, and env wins over envFrom. `$(NAME)` expands to a variable defined earlier; an unknown name stays as it is, and `$$` is a
dollar. Messages name objects and keys, never values.

A few variables that refer to each other could expand to more than fits into memory, so the size is counted before the text is built.
Entries that are read but left out count, too: a small pod object can name a large object hundreds of times.
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
"""Maximum characters of all variables of a container, names included. The kernel's own limit is about the same."""
MOST_OF_POD = 4 << 20
"""The same for all containers of a pod together."""
EACH = 32
"""Overhead of a variable in characters, also of one that is read and left out."""


class TooLarge(Exception):
    """More text than a container's environment may have."""


class _TooLargeTogether(TooLarge):
    """More than those of a pod's containers may have together."""


@dataclass(slots=True)
class Allowance:
    """The characters left for the variables of one pod, and of its current container."""

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
    """The value of one key; None if it is optional and missing."""
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
    allowance.take(len(entry.name) + size_of(kind, stored or ""))
    if stored is None:
        return None
    value = contents.secret_text(ref.name, ref.key) if kind == "Secret" else stored
    if "\0" in value:
        raise Unresolved(
            CONFIG_ERROR,
            f"env {entry.name}: the value contains a NUL byte, which a variable cannot; mount it as a file",
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
        allowance.take(len(source.prefix) + len(key) + size_of(kind, stored))
        value = contents.secret_text(ref.name, key) if kind == "Secret" else stored
        name = source.prefix + key
        if "=" not in name and "\0" not in name and "\0" not in value:
            yield name, value  # invalid names are left out, as in Kubernetes


def size_of(kind: str, stored: str) -> int:
    """The size of a value, before it is decoded."""
    return len(stored) * 3 // 4 if kind == "Secret" else len(stored)


def missing(pod: NodePod, kind: str, name: str, reason: str = CONFIG_ERROR) -> Unresolved:
    where = pod.metadata.namespace
    return Unresolved(reason, f'{kind.lower()} "{name}" not found; create it in namespace {where}, or make it optional')


def expand(text: str, values: Mapping[str, str]) -> str:
    """Expands `$(NAME)`. Raises TooLarge."""
    if "$" not in text:
        return text
    end = (
        text.rfind(")") + 1
    )  # no reference can end after the last bracket; without this bound, each `$(` would cause a scan to the end
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
