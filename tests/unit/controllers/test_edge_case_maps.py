"""The maps from the contract's edge cases, and from known weaknesses, to tests: nothing is missing, nothing is there twice, and
every test that they name exists, down to the id of its parameters.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from unit.controllers.claim import cases as claim
from unit.controllers.pool import cases as pool
from unit.controllers.pool_and_claim_weaknesses import WEAKNESSES as OF_POOLS_AND_CLAIMS
from unit.controllers.sandbox import cases as sandbox
from unit.controllers.weaknesses import WEAKNESSES as OF_SANDBOXES
from unit.controllers.weaknesses import NotHere, Shown

TESTS = Path(__file__).parents[2]

CATALOGUE = """
CR-01 CR-02 CR-03 CR-04 CR-05 CR-06 CR-07 CR-08 CR-09 CR-10 CR-11 CR-12 CR-13 CR-14 CR-15 CR-16 CR-17 CR-18 CR-19 CR-20 CR-21
CE-01 CE-02 CE-03 CE-04 CE-05 CE-06 CE-07 CE-08 CE-09 CE-10 CE-11 CE-12
CV-01 CV-02 CV-03 CV-04 CV-05 CV-06 CV-07 CV-08 CV-09
CD-01 CD-02 CD-03 CD-04 CD-05 CD-06 CD-07 CD-08 CD-09 CD-10
CN-01 CN-02
CA-01 CA-02 CA-03 CA-04 CA-05 CA-06 CA-07 CA-08 CA-09 CA-10 CA-11 CA-12 CA-13 CA-14 CA-15 CA-16 CA-17 CA-18 CA-19 CA-20
CA-21 CA-22 CA-23 CA-24 CA-25 CA-26 CA-27 CA-28 CA-29 CA-30 CA-31 CA-32
CC-01 CC-02 CC-03 CC-04 CC-05 CC-06 CC-07 CC-08 CC-09 CC-10 CC-11 CC-12 CC-13 CC-14 CC-15 CC-16 CC-17
CL-01 CL-02 CL-03 CL-04 CL-05 CL-06 CL-07 CL-08 CL-09 CL-10
CM-01 CM-02 CM-03 CM-04 CM-05 CM-06 CM-07 CM-08 CM-09 CM-10 CM-11 CM-12 CM-13 CM-14 CM-15 CM-16 CM-17 CM-18 CM-19
CW-01 CW-02 CW-03 CW-04 CW-05 CW-06
Q-01 Q-02 Q-03 Q-04 Q-05 Q-06 Q-07
P-01 P-02 P-03 P-04 P-05 P-06 P-07 P-08 P-09 P-10 P-11 P-12 P-13 P-14 P-15 P-16 P-17 P-18 P-19 P-20 P-21 P-22 P-23 P-24 P-25
P-26 P-27 P-28 P-29 P-30 P-31 P-32 P-33 P-34 P-35 P-36 P-37 P-38 P-39 P-40 P-41 P-42 P-43 P-44 P-45 P-46 P-47 P-48 P-49 P-50
P-51 P-52 P-53 P-54 P-55 P-56 P-57 P-58 P-59 P-60 P-61 P-62 P-63 P-64 P-65 P-66 P-67 P-68 P-69 P-70 P-71 P-72 P-73 P-74 P-75
P-76 P-77 P-78 P-79 P-80 P-81 P-82 P-83 P-84 P-85 P-86 P-87 P-88
X-01 X-02 X-03 X-04 X-05 X-06 X-07 X-08 X-09 X-10 X-11
T-01 T-02 T-03 T-04 T-05 T-06 T-07 T-08
V-01 V-02 V-03 V-04 V-05 V-06 V-07 V-08
E-01 E-02 E-03 E-04 E-05 E-06 E-07 E-08 E-09 E-10 E-11 E-12 E-13 E-14 E-15 E-16 E-17 E-18 E-19 E-20 E-21 E-22 E-23 E-24 E-25
E-26
1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45
46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87
88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121
122 123
W1 W2 W3 W4 W5 W6 W7 W8 W9 W10 W11 W12a W12b W12c W12d W12e W13 W14 W15 W16 W17 W18 W19 W20 W21 W22 W23 W24 W25 W26 W26b W27
L1 L2 L3 L4 L5 L6 L7 L8 L9 L10 L11 L12
S1 S2 S3 S4 S5 S6 S7 S8 S9 S10 S11 S12 S13 S14 S15 S16
N1 N2 N3 N4 N5
O1 O2 O3 O4 O5 O6
A1 A2 A3
""".split()  # noqa: SIM905 - read by people, too


class Entry(NamedTuple):
    """What a map says of one id: tests by their file and their name, and why it is different or cannot be here."""

    id: str
    tests: tuple[tuple[Path, str], ...]
    reason: str = ""


def in_files(id_: str, entry: str | tuple[str, str], files: dict[str, Path]) -> Entry:
    """An entry of the maps that name tests as "file.name"."""
    reason, name = ("", entry) if isinstance(entry, str) else entry
    file, _, test = name.partition(".")
    return Entry(id_, ((files[file], test),) if name else (), reason)


def by_path(tests: Iterable[tuple[str, str]]) -> tuple[tuple[Path, str], ...]:
    return tuple((TESTS / file, name) for file, name in tests)


def weakness(id_: str, entry: Shown | NotHere) -> Entry:
    match entry:
        case Shown(tests, _):
            return Entry(id_, by_path(tests))
        case NotHere(because):
            return Entry(id_, (), because)


def entries() -> Iterator[Entry]:
    for id_, case in claim.CASES.items():
        yield Entry(id_, by_path(case.tests), case.reason)
    for id_, told in pool.CASES.items():
        yield in_files(id_, told, pool.FILES)
    for number, told in sandbox.CASES.items():  # type: ignore[assignment]
        yield in_files(str(number), told, sandbox.FILES)
    for id_, found in (*OF_SANDBOXES.items(), *OF_POOLS_AND_CLAIMS.items()):
        yield weakness(id_, found)


ENTRIES = list(entries())


@cache
def functions_of(file: Path) -> frozenset[str]:
    """The tests at the top of a file: what stands inside something else is never collected."""
    tree = ast.parse(file.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def module_of(file: Path) -> ModuleType:
    name = f"_mapped_{file.relative_to(TESTS).with_suffix('').as_posix().replace('/', '_')}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parameters_of(file: Path, function: str) -> set[str]:
    """The ids that the parameters of a test have, as pytest makes them of plain values and of ids that are given."""
    marks = [mark for mark in getattr(module_of(file), function).pytestmark if mark.name == "parametrize"]
    return {"-".join(parts) for parts in product(*(list(_ids(mark)) for mark in marks))}


def _ids(mark: Any) -> Iterator[str]:
    several = isinstance(mark.args[0], tuple | list) or "," in mark.args[0]
    given = mark.kwargs.get("ids")
    for index, value in enumerate(mark.args[1]):
        if callable(given):
            yield str(given(value))
        elif given is not None:
            yield str(given[index])
        else:
            yield "-".join(str(one) for one in value) if several else str(value)


def test_every_id_is_in_exactly_one_map() -> None:
    mapped = [entry.id for entry in ENTRIES]
    assert sorted(mapped) == sorted(CATALOGUE)
    assert len(set(CATALOGUE)) == len(CATALOGUE)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_it_has_a_test_or_a_reason(entry: Entry) -> None:
    assert entry.tests or len(entry.reason) > 20
    assert not entry.reason or len(entry.reason) > 20
    for file, name in entry.tests:
        function, bracket, parameters = f"test_{name}".removesuffix("]").partition("[")
        assert function in functions_of(file), f"{file.relative_to(TESTS)} has no {function}"
        assert not bracket or parameters in parameters_of(file, function), parameters_of(file, function)


def test_few_are_different_without_a_test_that_shows_how() -> None:
    """A reason alone is for what does not exist here at all."""
    bare = {entry.id for entry in ENTRIES if not entry.tests}
    conversion = {f"V-{number:02}" for number in range(1, 9)}
    assert bare - conversion == {"E-23", "P-71", "X-10", "116", "119", "120", "W13", "W15", "A1"}
