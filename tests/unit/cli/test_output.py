"""What `-o` gives: formats, and tables as a server lays them out."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.output import table as tables
from sandpool.cli.output.formats import format_of, line, one, several, whole
from sandpool.model.kinds import CLAIMS, PODS

CLAIM: dict[str, Any] = {
    "apiVersion": "extensions.agents.x-k8s.io/v1beta1",
    "kind": "SandboxClaim",
    "metadata": {"name": "mine", "note": "größer"},
}
DEFINITIONS = [
    {"name": "Name", "priority": 0},
    {"name": "Ready", "priority": 0},
    {"name": "Age", "priority": 0},
    {"name": "Pool", "priority": 1},
]


def test_one_object() -> None:
    assert json.loads(one(CLAIMS, CLAIM, format_of("json"))) == CLAIM
    assert yaml.safe_load(one(CLAIMS, CLAIM, format_of("yaml"))) == CLAIM
    assert "größer" in one(CLAIMS, CLAIM, format_of("yaml"))
    assert one(CLAIMS, CLAIM, format_of("name")) == "sandboxclaim.extensions.agents.x-k8s.io/mine\n"
    assert one(PODS, {"metadata": {"name": "p"}}, format_of("name")) == "pod/p\n"
    assert one(CLAIMS, CLAIM, format_of("jsonpath={.metadata.name}")) == "mine"


def test_several_objects_are_a_list() -> None:
    both = several(CLAIMS, [CLAIM, CLAIM], format_of("json"))
    assert json.loads(both)["kind"] == "List"
    assert len(json.loads(both)["items"]) == 2
    assert several(CLAIMS, [CLAIM, CLAIM], format_of("jsonpath={.items[*].metadata.name}")) == "mine mine"
    assert several(CLAIMS, [], format_of("name")) == ""


def test_a_watch_gives_one_object_a_line() -> None:
    text = line({"a": "two\nlines"})
    assert text.count("\n") == 1
    assert json.loads(text) == {"a": "two\nlines"}


def test_items_of_a_list_get_their_kind() -> None:
    assert whole(PODS, {"metadata": {}})["kind"] == "Pod"


@pytest.mark.parametrize("text", ["", "xml", "jsonpath", "jsonpath=", "jsonpath={.a", "JSON"])
def test_other_formats_are_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(Exit, match="jsonpath") as refused:
        format_of(text)
    assert refused.value.code == USAGE


def rows(*cells: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [{"cells": list(one), "object": {"metadata": {"namespace": "ns"}}} for one in cells]


def shown(
    items: list[dict[str, Any]], *, all: bool = False, namespaces: bool = False, color: bool = False
) -> list[str]:
    chosen = tables.columns(DEFINITIONS, all=all)
    table = tables.Table(tables.header(DEFINITIONS, chosen, namespaces=namespaces), color)
    return table.lines([tables.row(item, chosen, namespaces=namespaces) for item in items], header=True)


def test_a_table_has_the_columns_that_were_asked_for() -> None:
    items = rows(("a", "True", "5s", "python"), ("much-longer", None, "12m", ""))
    assert shown(items) == [
        "NAME          READY    AGE",
        "a             True     5s",
        "much-longer   <none>   12m",
    ]
    assert shown(items, all=True)[1] == "a             True     5s    python"
    assert shown(items, namespaces=True)[1] == "ns          a             True     5s"


def test_words_of_tenants_move_no_cursor_and_begin_no_line() -> None:
    text = "\n".join(shown(rows(("a\x1b[2Jb\nc", "True", "", ""))))
    assert "\x1b" not in text
    assert text.count("\n") == 1


def test_json_does_nothing_to_a_terminal_either() -> None:
    body = {"metadata": {"name": "a", "annotations": {"x": "\x1b[1m\x9b31m\x85\u202eok\u2028ä"}}}
    for shown in (one(PODS, body, format_of("json")), line(body)):
        assert json.loads(shown) == body
        assert all(letter.isprintable() for letter in shown.replace("\n", ""))
        assert "ä" in shown
    shown = one(PODS, body, format_of("yaml"))
    assert yaml.safe_load(shown)["metadata"] == body["metadata"]
    assert all(letter.isprintable() for letter in shown.replace("\n", ""))


def test_colours_change_no_width() -> None:
    items = rows(("a", "True", "5s", ""), ("b", "False", "5s", ""))
    painted, plain = shown(items, color=True), shown(items)
    assert "\x1b[32mTrue\x1b[0m" in painted[1]
    assert "\x1b[31mFalse\x1b[0m" in painted[2]
    strip = str.maketrans("", "", "\x1b")
    assert [
        text.translate(strip).replace("[32m", "").replace("[31m", "").replace("[1m", "").replace("[0m", "")
        for text in painted
    ] == plain


def test_wide_characters_count_as_they_are_shown() -> None:
    lines = shown(rows(("日本", "True", "", ""), ("abcd", "True", "", "")))
    assert lines[1].index("True") == lines[2].index("True") - 2  # two characters that take four columns


def test_later_rows_keep_the_columns() -> None:
    table = tables.Table(("NAME", "READY"))
    first = table.lines([("a-long-name", "True")], header=True)
    later = table.lines([("b", "False")], header=False)
    assert later == ["b             False"]
    assert first[1].index("True") == later[0].index("False")
