"""What names, labels and keys may look like, and why not, in Kubernetes' words. Empty: it is fine.

The answers about keys and values are remembered: a cluster uses the same few over and over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

from sandpool.model import names

NameRule: TypeAlias = Callable[[str], Sequence[str]]

_CONFIG_KEY = "[-._a-zA-Z0-9]+"
is_config_key = re.compile(rf"(?!\.\.)(?!\.\Z)[-._a-zA-Z0-9]{{1,{names.MAX_SUBDOMAIN}}}\Z").match
"""Whether nothing is wrong with a key of a ConfigMap or Secret, at a tenth of what it costs to say what is: there may be 50,000."""
_BAD_CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
    f"(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '{_CONFIG_KEY}')"
)

dns_subdomain: NameRule = names.dns_subdomain
dns_label: NameRule = names.dns_label
dns_label_1035: NameRule = names.dns_label_1035
path_segment: NameRule = names.path_segment
generated_prefix = names.generated_prefix


@lru_cache(4096)
def label_key(key: str) -> tuple[str, ...]:
    """A qualified name: also finalizers and resource names."""
    return tuple(names.qualified_name(key))


@lru_cache(4096)
def annotation_key(key: str) -> tuple[str, ...]:
    """Like a label's, but upper case is fine in the prefix too."""
    return tuple(names.qualified_name(key.lower()))


@lru_cache(4096)
def label_value(value: str) -> tuple[str, ...]:
    return tuple(names.label_value(value))


@lru_cache(4096)
def config_key(key: str) -> tuple[str, ...]:
    """A key of a ConfigMap or Secret: it becomes a file name."""
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
