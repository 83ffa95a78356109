"""All REST cases, by name."""

from __future__ import annotations

from conformance.rest import (
    cases_core,
    cases_decoding,
    cases_delete,
    cases_metadata,
    cases_patch,
    cases_query,
    cases_quota,
    cases_routes,
    cases_schema,
)
from conformance.rest.case import Case

MODULES = (
    cases_routes,
    cases_query,
    cases_quota,
    cases_decoding,
    cases_metadata,
    cases_schema,
    cases_core,
    cases_patch,
    cases_delete,
)
CASES: dict[str, Case] = {}
for _module in MODULES:
    for _case in _module.CASES:
        assert _case.name not in CASES, f"two cases are called {_case.name!r}"
        CASES[_case.name] = _case
