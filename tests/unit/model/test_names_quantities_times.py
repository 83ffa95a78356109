"""Names, quantities, times and percentages: what Kubernetes accepts, and what it makes of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandpool.model import names, quantities, times
from sandpool.model.pool import Bounds, PercentError, count_of, rolling_bounds
from sandpool.model.quantities import Family, QuantityError, canonical, parse
from support.simulated.model_search import unhurried


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (names.dns_subdomain, ["a", "a.b", "1-a.b2", "a" * 253], ["", "A", "a_b", ".a", "a.", "-a", "a" * 254, "a\n"]),
        (names.dns_label, ["a", "1a", "a-b", "a" * 63], ["", "a.b", "A", "a-", "a" * 64]),
        (names.dns_label_1035, ["a", "a1", "a-b"], ["", "1a", "a.b", "a-", "a" * 64]),
        (
            names.qualified_name,
            ["a", "A.b_c-d", "x.io/a"],
            ["", "/a", "x/", "a/b/c", "X.io/a", "-a", "x.io/" + "a" * 64],
        ),
        (names.label_value, ["", "a", "A.b_c-d", "a" * 63], ["-a", "a b", "é", "a" * 64]),
        (names.path_segment, ["a", "a:b"], [".", "..", "a/b", "a%b"]),
    ],
)
def test_names(check, good: list[str], bad: list[str]) -> None:  # type: ignore[no-untyped-def]
    assert [text for text in good if check(text)] == []
    assert [text for text in bad if not check(text)] == []


def test_the_words_about_names() -> None:
    assert names.dns_label("a.b") == ["must not contain dots"]
    assert names.dns_label("a" * 64) == ["must be no more than 63 characters"]
    assert names.label_value("a" * 64) == ["must be no more than 63 bytes"]
    assert names.dns_subdomain("A") == [
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
        "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    ]
    assert names.qualified_name("/") == [
        "prefix part must be non-empty",
        "name part must be non-empty",
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
        "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "811c9dc5"),
        ("a", "e40c292c"),
        ("my-sandbox", "374de8f5"),
        ("sandbox-name", "ab179450"),
        ("test-pool", "59733166"),
        ("python-sandbox-template", "d274c066"),
    ],
)
def test_name_hash(name: str, expected: str) -> None:
    assert names.name_hash(name) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "0"),
        ("1", "1"),
        ("+1", "1"),
        ("1.5", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("1000m", "1"),
        ("1000", "1k"),
        ("1k", "1k"),
        ("0.1m", "100u"),
        ("0.5n", "1n"),
        ("-0.5n", "-1n"),
        ("1e3", "1e3"),
        ("12E6", "12e6"),
        ("1500e-3", "1500e-3"),
        ("0.5Ki", "512"),
        ("1Ki", "1Ki"),
        ("1000Ki", "1000Ki"),
        ("0.1Ki", "102400m"),
        ("16Ei", "9223372036854775807"),
        ("99999999999G", "99999999999G"),
        (2, "2"),
        (0.5, "500m"),
        ("1.", "1"),
        (".5", "500m"),
        ("1E", "1E"),
    ],
)
def test_quantity(text: str | int | float, expected: str) -> None:
    """Compared with apimachinery when it was written down."""
    assert canonical(text) == expected


@pytest.mark.parametrize("text", ["", "x", "1.2.3", "--1", "1 Gi", " 1", "1\n", ".", "+", "Gi", "1e", "١"])
def test_no_quantity(text: str) -> None:
    with pytest.raises(QuantityError):
        parse(text)


@pytest.mark.parametrize("text", ["1K", "1ki", "1mi", "1e", "1ee5"])
def test_wrong_suffix_is_told(text: str) -> None:
    with pytest.raises(QuantityError, match="unable to parse quantity's suffix"):
        parse(text)


def test_an_absurd_exponent_costs_nothing() -> None:
    assert parse("1e999999999") > parse("1E")
    assert parse("1e-999999999") == parse("1n")


def test_quantities_compare_and_add_by_value() -> None:
    assert parse("1Gi") == parse("1024Mi")
    assert hash(parse("1Gi")) == hash(parse("1024Mi"))
    assert parse("1G") < parse("1Gi")
    assert str(parse("512Mi") + parse("512Mi")) == "1Gi"
    assert str(parse("0") + parse("1Gi")) == "1Gi"
    assert str(parse("1") - parse("100m")) == "900m"
    assert (parse("1500m").value, parse("-1500m").value, parse("1500m").milli) == (2, -2, 1500)


@unhurried
@given(st.integers(-(2**70), 2**70), st.sampled_from(list(Family)))
def test_writing_a_quantity_loses_nothing(nanos: int, family: Family) -> None:
    quantity = quantities.Quantity(nanos, family)
    again = parse(str(quantity))
    assert again == quantity
    assert str(again) == str(quantity)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29T01:02:03Z", datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
        ("2024-01-01T01:00:00+02:00", datetime(2023, 12, 31, 23, tzinfo=UTC)),
        ("2024-01-01T00:00:00.123456789Z", datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)),
        ("2024-01-01T00:00:00.5-00:30", datetime(2024, 1, 1, 0, 30, 0, 500000, tzinfo=UTC)),
    ],
)
def test_time(text: str, expected: datetime) -> None:
    assert times.parse(text) == expected
    assert times.parse(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-01-01",
        "2024-01-01T00:00:00",
        "2024-01-01 00:00:00Z",
        "2024-01-01t00:00:00Z",
        "2024-01-01T00:00:00z",
        "2023-02-29T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:00:60Z",
        "2024-01-01T00:00:00.Z",
        "2024-01-01T00:00:00+0200",
        "2024-01-01T00:00:00+99:00",
        "0001-01-01T00:00:00+02:00",
        "٢٠٢٤-01-01T00:00:00Z",
        "2024-01-01T00:00:00Z\n",
    ],
)
def test_no_time(text: str) -> None:
    with pytest.raises(times.TimeError, match="parsing time"):
        times.parse(text)


@unhurried
@given(
    st.datetimes(
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]), min_value=datetime(2, 1, 1)
    )
)
def test_times_survive_the_wire(moment: datetime) -> None:
    assert times.parse(times.micro(moment)) == moment
    assert times.parse(times.seconds(moment)) == moment.replace(microsecond=0)
    assert len(times.micro(moment)) == 27


@pytest.mark.parametrize(
    ("unavailable", "surge", "replicas", "bounds"),
    [
        ("25%", "25%", 10, Bounds(2, 3)),
        ("25%", "25%", 4, Bounds(1, 1)),
        ("25%", "25%", 1, Bounds(0, 1)),
        ("25%", "0%", 1, Bounds(1, 0)),
        (0, 0, 5, Bounds(1, 0)),
        (3, 0, 2, Bounds(2, 0)),
        ("100%", "100%", 3, Bounds(3, 3)),
        ("25%", "25%", 0, Bounds(0, 0)),
        (1, 2, 10, Bounds(1, 2)),
    ],
)
def test_rolling_bounds(unavailable: int | str, surge: int | str, replicas: int, bounds: Bounds) -> None:
    assert rolling_bounds(unavailable, surge, replicas) == bounds


@pytest.mark.parametrize("value", ["", "25", "%", "-1%", "x%", "2.5%"])
def test_no_percentage(value: str) -> None:
    with pytest.raises(PercentError):
        count_of(value, 10, up=True)


@pytest.mark.parametrize("text", ["1" * 1_000_000 + "!", "1." + "1" * 1_000_000 + "!", "1e" + "1" * 1_000_000 + "!"])
def test_a_long_text_that_is_no_quantity_is_looked_at_once(text: str) -> None:
    """Each of its digits could belong to the number or to the exponent, which was tried in every way: for a day."""
    with pytest.raises(QuantityError):
        parse(text)


def test_a_percentage_of_thousands_of_digits_is_none() -> None:
    with pytest.raises(PercentError):
        count_of("9" * 5000 + "%", 10, up=True)


@pytest.mark.parametrize(
    "check",
    [names.dns_subdomain, names.dns_label, names.dns_label_1035, names.qualified_name, names.label_value],
)
def test_a_name_that_is_much_too_long_is_not_compared_with_a_pattern(check: Callable[[str], list[str]]) -> None:
    """Its form is told as wrong, too: matching a megabyte takes a tenth of a second, for each thing that is checked."""
    assert len(check("a" * 300)) == 1
    assert len(check("a" * 2000)) == 2
