"""A wrapper for secrets: no repr, log or traceback shows the value; only `reveal` returns it."""

from __future__ import annotations

from typing import NoReturn, final


@final
class Secret:
    """Holds a token, a password or a private key. Its repr, str and format never contain the value."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "<secret>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled")
