"""Validates names, label keys and label values with Kubernetes' messages, and hashes names.

Each check returns a list of errors, empty if the text is valid. Lengths are in bytes, as in Go.
"""

from __future__ import annotations

import re
from functools import lru_cache

LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = LABEL + r"(\." + LABEL + ")*"
LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
VALUE = f"({KEY})?"

MAX_LABEL = 63
MAX_SUBDOMAIN = 253
_LONGEST = 1024  # characters that are compared with a pattern

_LABEL_SAYS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_SUBDOMAIN_SAYS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_LABEL_1035_SAYS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character"
)
_KEY_SAYS = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_VALUE_SAYS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)

_label = re.compile(LABEL)
_subdomain = re.compile(SUBDOMAIN)
_label_1035 = re.compile(LABEL_1035)
_key = re.compile(KEY)
_value = re.compile(VALUE)


def dns_subdomain(text: str) -> list[str]:
    """DNS-1123 subdomain: the name of most objects."""
    return _dns_subdomain(text, "characters")


def dns_label(text: str) -> list[str]:
    """DNS-1123 label: the name of a namespace."""
    wrong = _too_long(text, MAX_LABEL, "characters")
    if not _fits(_label, text):
        dots = _fits(_subdomain, text)
        wrong.append("must not contain dots" if dots else _pattern(_LABEL_SAYS, LABEL, "my-name", "123-abc"))
    return wrong


def dns_label_1035(text: str) -> list[str]:
    """DNS-1035 label: the name of a Service."""
    wrong = _too_long(text, MAX_LABEL, "characters")
    if not _fits(_label_1035, text):
        wrong.append(_pattern(_LABEL_1035_SAYS, LABEL_1035, "my-name", "abc-123"))
    return wrong


def qualified_name(text: str) -> list[str]:
    """The key of a label or an annotation: an optional DNS prefix, a slash, a name."""
    parts = text.split("/")
    examples = ("MyName", "my.name", "123-abc")
    if len(parts) > 2:
        tail = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {_pattern(_KEY_SAYS, KEY, *examples)}{tail}"]
    wrong: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            wrong.append("prefix part must be non-empty")
        else:
            wrong += [f"prefix part {message}" for message in _dns_subdomain(parts[0], "bytes")]
    name = parts[-1]
    if not name:
        wrong.append("name part must be non-empty")
    wrong += [f"name part {message}" for message in _too_long(name, MAX_LABEL, "bytes")]
    if not _fits(_key, name):
        wrong.append(f"name part {_pattern(_KEY_SAYS, KEY, *examples)}")
    return wrong


def label_value(text: str) -> list[str]:
    wrong = _too_long(text, MAX_LABEL, "bytes")
    if not _fits(_value, text):
        wrong.append(_pattern(_VALUE_SAYS, VALUE, "MyValue", "my_value", "12345"))
    return wrong


def path_segment(text: str) -> list[str]:
    """What any name must satisfy to be part of a URL path. Custom resources and core kinds have stricter rules."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{mark}'" for mark in "/%" if mark in text]


def generated_prefix(text: str) -> str:
    """A generateName in the form that is validated: a trailing dash is allowed, because random characters follow."""
    return text[:-1] + "a" if text.endswith("-") else text


@lru_cache(maxsize=2048)  # called repeatedly for the same names
def name_hash(name: str) -> str:
    """The 32-bit FNV-1a hash of a name as 8 hexadecimal digits. Labels use it, because names may be too long for a label.

    It is short and can collide, so check the owner of what it selects.
    """
    value = 2166136261
    for byte in name.encode():
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return f"{value:08x}"


def _dns_subdomain(text: str, unit: str) -> list[str]:
    wrong = _too_long(text, MAX_SUBDOMAIN, unit)
    if not _fits(_subdomain, text):
        wrong.append(_pattern(_SUBDOMAIN_SAYS, SUBDOMAIN, "example.com"))
    return wrong


def _fits(pattern: re.Pattern[str], text: str) -> bool:
    """Whether the text has this form. One that is much too long has none: matching a megabyte takes a tenth of a second."""
    return len(text) <= _LONGEST and pattern.fullmatch(text) is not None


def _too_long(text: str, most: int, unit: str) -> list[str]:
    return [f"must be no more than {most} {unit}"] if len(text.encode("utf-8", "surrogatepass")) > most else []


def _pattern(says: str, pattern: str, *examples: str) -> str:
    some = " or ".join(f"'{example}', " for example in examples)
    return f"{says} (e.g. {some}regex used for validation is '{pattern}')"
