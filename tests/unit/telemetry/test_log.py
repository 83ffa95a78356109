from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from sandpool.telemetry.log import REDACTED, bound, configure, logger, redact


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger("sandpool")
    before = (list(root.handlers), root.level, root.propagate)
    yield
    root.handlers[:], root.level, root.propagate = before


def lines(style: str, level: str = "INFO") -> io.StringIO:
    stream = io.StringIO()
    configure(style=style, level=level, stream=stream)
    return stream


def test_text_lines_have_a_constant_message_and_keys() -> None:
    out = lines("text")
    logger("sandpool.test").info("lease acquired", lease="a/b", by="me and you")
    (line,) = out.getvalue().splitlines()
    assert line.endswith('INFO sandpool.test lease acquired lease=a/b by="me and you"')


def test_a_line_cannot_be_forged_by_a_value() -> None:
    out = lines("text")
    logger("sandpool.test").info("seen", name="x\n2026 INFO forged")
    assert len(out.getvalue().splitlines()) == 1


def test_json_lines_are_objects() -> None:
    out = lines("json")
    try:
        raise ValueError("bad")
    except ValueError as error:
        logger("sandpool.test").error("failed", exc=error, key=("a", 1), msg="not this")
    record = json.loads(out.getvalue())
    assert (record["msg"], record["level"], record["logger"]) == ("failed", "ERROR", "sandpool.test")
    assert record["key"] == ["a", 1]
    assert "ValueError: bad" in record["traceback"]
    assert record["ts"].endswith("Z")


def test_bound_keys_are_on_every_line_inside_and_no_other() -> None:
    out = lines("text")
    log = logger("sandpool.test")
    with bound(key="ns/a", rid="7"):
        with bound(step="x"):
            log.info("inner")
        log.info("outer", rid="8")
    log.info("outside")
    inner, outer, outside = out.getvalue().splitlines()
    assert inner.endswith("inner key=ns/a rid=7 step=x")
    assert outer.endswith("outer key=ns/a rid=8")
    assert outside.endswith("outside")


def test_secrets_are_not_written() -> None:
    out = lines("text")
    logger("sandpool.test").info("called", token="abc", Authorization="Bearer abc", name="abcd")
    assert "abc " not in out.getvalue()
    assert "Bearer" not in out.getvalue()
    assert "name=abcd" in out.getvalue()
    assert redact({"Set-Cookie": "x", "client_secret": "y", "host": "z"}) == {
        "Set-Cookie": REDACTED,
        "client_secret": REDACTED,
        "host": "z",
    }


def test_levels_and_styles() -> None:
    out = lines("text", "WARNING")
    log = logger("sandpool.test")
    log.info("quiet")
    log.debug("quieter")
    log.warning("loud")
    assert [line.split()[3] for line in out.getvalue().splitlines()] == ["loud"]
    with pytest.raises(ValueError, match="use one of: text, json"):
        configure(style="xml")
