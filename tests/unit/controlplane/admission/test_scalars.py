"""Values that were accepted before are passed over, and no other value with them."""

from __future__ import annotations

from typing import Any

import pytest

from sandpool.controlplane.admission.causes import Findings
from sandpool.controlplane.admission.dialect import Dialect
from sandpool.controlplane.admission.schema_compiler import compile_schema

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {"type": "string", "enum": ["True", "False"]},
        "reason": {"type": "string", "maxLength": 5},
        "at": {"type": "string", "format": "date-time"},
        "count": {"type": "integer", "minimum": 0},
    },
}


@pytest.mark.parametrize("dialect", list(Dialect))
def test_good_values_stay_good_and_bad_ones_bad(dialect: Dialect) -> None:
    check = compile_schema(SCHEMA, dialect)

    def wrong(**fields: Any) -> bool:
        out = Findings("Thing")
        check(fields, None, None, "", out)
        return bool(out.causes or out.undecodable)

    for _ in range(3):
        assert not wrong(status="True", reason="short", at="2026-01-01T00:00:00Z", count=1)
        assert wrong(status="Maybe")
        assert wrong(at="yesterday")
        assert wrong(count=True)
        assert wrong(count="1")
        assert wrong(status=1)
        if dialect is Dialect.CUSTOM:
            assert wrong(reason="too long")
            assert wrong(count=-1)


def test_an_accepted_value_is_not_taken_for_its_like() -> None:
    check = compile_schema(SCHEMA, Dialect.CUSTOM)
    assert check({"count": 1}, None, None, "", Findings()) == {"count": 1}
    read = check({"count": 1.0}, None, None, "", Findings())
    assert type(read["count"]) is int


def test_more_values_than_are_remembered() -> None:
    check = compile_schema(SCHEMA, Dialect.CUSTOM)
    for number in range(2_000):
        out = Findings()
        check({"reason": str(number), "count": number}, None, None, "", out)
        assert not out.causes
