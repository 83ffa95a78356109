"""A container's environment: everything that it refers to looked up, `$(NAME)` put in. Pure.

Later entries win, env over envFrom. `$(NAME)` stands for what came before it; one that is not known stays as it is, and `$$`
is a dollar. Messages name objects and keys, never values.

A few variables that name each other can stand for more than any memory holds, so what they stand for is counted before it is made.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping

from sandpool.model.core import ConfigMap, Secret
from sandpool.node.kubelet.downward import Here, NoSuchField, field_value, resource_value
from sandpool.node.kubelet.pods import NodeContainer, NodeEnvVar, NodePod
from sandpool.node.kubelet.references import CONFIG_ERROR, Found, Unresolved
from sandpool.node.kubelet.sources import EnvFrom, KeyRef, ValueFrom

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
MOST = 1 << 20
"""Characters of all variables of a container, names included. The kernel takes hardly more."""


class TooLarge(Exception):
    """More text than a container's environment may have."""


def environment(pod: NodePod, container: NodeContainer, found: Found, here: Here) -> dict[str, str]:
    values: dict[str, str] = {}
    left = MOST
    try:
        for source in container.env_from:
            for name, value in _all_of(pod, source, found):
                left = _after(left, name, value)
                values[name] = value
        for entry in container.env:
            text = _value(pod, container, entry, values, found, here)
            if text is not None:
                left = _after(left, entry.name, text)
                values[entry.name] = text
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


def _after(left: int, name: str, value: str) -> int:
    left -= len(name) + len(value)
    if left < 0:
        raise TooLarge
    return left


def _value(
    pod: NodePod, container: NodeContainer, entry: NodeEnvVar, values: Mapping[str, str], found: Found, here: Here
) -> str | None:
    source = entry.value_from
    if source is None:
        return expand(entry.value, values)
    if source.field_ref is not None:
        return field_value(pod, source.field_ref.field_path, here)
    if source.resource_field_ref is not None:
        return resource_value(pod, container, source.resource_field_ref, here)
    value = _of_object(pod, source, found)
    if value is not None and "\0" in value:
        raise Unresolved(
            CONFIG_ERROR, f"env {entry.name}: the value holds a NUL byte, which no variable can; mount it as a file"
        )
    return value


def _of_object(pod: NodePod, source: ValueFrom, found: Found) -> str | None:
    """The value of one key; None if it may be missing and is."""
    if source.config_map_key_ref is not None:
        ref = source.config_map_key_ref
        config_map = found.config_maps.get(ref.name)
        return _key(pod, ref, "ConfigMap", None if config_map is None else config_map.data)
    if source.secret_key_ref is not None:
        ref = source.secret_key_ref
        secret = found.secrets.get(ref.name)
        coded = None if secret is None else secret.data
        value = _key(pod, ref, "Secret", coded)
        return None if value is None else decoded(value, ref.name, ref.key).decode("utf-8", "surrogateescape")
    raise Unresolved(CONFIG_ERROR, "valueFrom names no source that is known here; use a field, a ConfigMap or a Secret")


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


def _all_of(pod: NodePod, source: EnvFrom, found: Found) -> Iterator[tuple[str, str]]:
    object_: ConfigMap | Secret | None = None
    ref, kind = source.config_map_ref, "ConfigMap"
    if ref is not None:
        object_ = found.config_maps.get(ref.name)
    elif source.secret_ref is not None:
        ref, kind = source.secret_ref, "Secret"
        object_ = found.secrets.get(ref.name)
    if ref is None or (object_ is None and ref.optional):
        return
    if object_ is None:
        raise missing(pod, kind, ref.name)
    for key, text in sorted(object_.data.items()):
        value = text
        if kind == "Secret":
            value = decoded(text, ref.name, key).decode("utf-8", "surrogateescape")
        name = source.prefix + key
        if "=" not in name and "\0" not in name + value:  # what cannot be a variable is left out, as in Kubernetes
            yield name, value


def missing(pod: NodePod, kind: str, name: str, reason: str = CONFIG_ERROR) -> Unresolved:
    where = pod.metadata.namespace
    return Unresolved(reason, f'{kind.lower()} "{name}" not found; create it in namespace {where}, or make it optional')


def decoded(text: str, secret: str, key: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Unresolved(
            CONFIG_ERROR, f'key {key} of secret "{secret}" is not base64; write it with stringData'
        ) from None


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
