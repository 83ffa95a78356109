"""The syntax of names, labels and keys. Each rule returns Kubernetes' messages about a value; an empty result means that it is valid.

Results are not cached: an invalid value may be as long as a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from sandpool.controlplane.admission import causes
from sandpool.kube.errors import Cause
from sandpool.model import names

NameRule: TypeAlias = Callable[[str], Sequence[str]]

_CONFIG_KEY = "[-._a-zA-Z0-9]+"
is_config_key = re.compile(rf"(?!\.\.)(?!\.\Z)[-._a-zA-Z0-9]{{1,{names.MAX_SUBDOMAIN}}}\Z").match
"""Whether a key of a ConfigMap or Secret is valid, ten times as fast as `config_key`: there may be 50,000 keys."""
_BAD_CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
    f"(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '{_CONFIG_KEY}')"
)

_WORD = f"[A-Za-z0-9](?:[-A-Za-z0-9_.]{{0,{names.MAX_LABEL - 2}}}[A-Za-z0-9])?"
_PREFIX = rf"(?=[^/]{{1,{names.MAX_SUBDOMAIN}}}/)" + names.SUBDOMAIN.replace("(", "(?:")
is_label_key = re.compile(rf"(?:{_PREFIX}/)?{_WORD}\Z").match
is_label_value = re.compile(rf"(?:{_WORD})?\Z").match
"""These two say whether a label key, or value, is valid, ten times as fast as `label_key` and `label_value`."""

dns_subdomain: NameRule = names.dns_subdomain
dns_label: NameRule = names.dns_label
path_segment: NameRule = names.path_segment
generated_prefix = names.generated_prefix


def label_key(key: str) -> tuple[str, ...]:
    """Checks a qualified name: a label key, a finalizer or a resource name."""
    return () if is_label_key(key) else tuple(names.qualified_name(key))


def annotation_key(key: str) -> tuple[str, ...]:
    """Like `label_key`, but the prefix may have upper case."""
    return label_key(key.lower())


def label_value(value: str) -> tuple[str, ...]:
    return () if is_label_value(value) else tuple(names.label_value(value))


def config_key(key: str) -> tuple[str, ...]:
    """Checks a key of a ConfigMap or Secret, which becomes a file name."""
    found = [f"must be no more than {names.MAX_SUBDOMAIN} characters"] if len(key) > names.MAX_SUBDOMAIN else []
    if not re.fullmatch(_CONFIG_KEY, key):
        found.append(_BAD_CONFIG_KEY)
    if key in (".", ".."):
        found.append(f"must not be '{key}'")
    elif key.startswith(".."):
        found.append("must not start with '..'")
    return tuple(found)


def port_name(name: str) -> list[str]:
    found = ["must be no more than 15 characters"] if len(name) > 15 else []
    if not re.fullmatch("[-a-z0-9]+", name):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", name):
        found.append("must contain at least one letter (a-z)")
    if "--" in name:
        found.append("must not contain consecutive hyphens")
    if name[:1] == "-" or name[-1:] == "-":
        found.append("must not begin or end with a hyphen")
    return found


def check_labels(field: str, labels: Iterable[tuple[str, str]]) -> list[Cause]:
    found: list[Cause] = []
    for key, value in labels:
        if not (is_label_key(key) and is_label_value(value)):
            found += [causes.invalid(field, key, text) for text in label_key(key)]
            found += [causes.invalid(field, value, text) for text in label_value(value)]
            if len(found) > causes.MOST_REPORTED:
                break
    return found
