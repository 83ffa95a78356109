from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandpool.telemetry.log import REDACTED, bound, configure, logger, redact


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger("sandpool")
    before = (list(root.handlers), root.level, root.propagate)
    others = logging.lastResort
    yield
    root.handlers[:], root.level, root.propagate = before
    logging.lastResort = others


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


FULL = """
import logging, resource, signal
from sandpool.telemetry.log import configure, logger
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
configure(style="text")
log = logger("sandpool.test")
log.info("before")
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
for number in range(400):
    log.warning("lost", number=number, filler="x" * 50)
    logging.getLogger("library").warning("lost as well")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.info("after")
logging.getLogger("library").warning("heard again")
"""


def test_a_log_that_cannot_be_written_says_so_once_and_later(tmp_path: Path) -> None:
    """As on a full disk: the log is a file that may not grow."""
    path = tmp_path / "log"
    with open(path, "wb") as file:
        assert subprocess.run([sys.executable, "-c", FULL], stderr=file, check=False).returncode == 0
    said = path.read_text()
    assert "Traceback" not in said
    assert "Logging error" not in said
    told = [line for line in said.splitlines() if "lines could not be written to the log" in line]
    assert len(told) == 1
    assert re.search(r"Z WARNING sandpool.telemetry.log lines could .* lines=\d+ error=\"File too large\"$", told[0])
    for words in ("INFO sandpool.test before", "INFO sandpool.test after", "WARNING library heard again"):
        assert said.count(words) == 1


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_no_traceback_takes_the_place_of_a_line_that_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    configure(style="json", stream=Full())
    logger("sandpool.test").error("commit failed", exc=OSError(errno.ENOSPC, "x"))
    logging.getLogger("library").error("lost as well")
    assert capsys.readouterr() == ("", "")
