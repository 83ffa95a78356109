"""Alerts and dashboard ask only for metrics and labels that the program has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from sandpool.telemetry.families import ALL
from sandpool.telemetry.metrics import Metrics
from support.kube.helm import CHART
from support.product.declared_metrics import declared_metrics

FROM_PROMETHEUS = {"up": {"job"}}
WORDS = {
    "absent", "and", "by", "histogram_quantile", "increase", "label_values", "max", "on", "or", "rate", "sum",
}  # fmt: skip
EVERYWHERE = {"le", "job", "pod", "instance"}


def known() -> dict[str, set[str]]:
    """Each name that a scrape of the controller can show, with its labels."""
    found = dict(FROM_PROMETHEUS)
    for metric in declared_metrics(Metrics().registry):
        suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("", "_total")
        found |= {metric.name + suffix: set(metric.labels) for suffix in suffixes}
    for family in ALL:
        found[family.name + ("_total" if family.counter else "")] = set(family.labels)
    return found


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((CHART / "files/alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    text = json.loads((CHART / "files/dashboard.json").read_text())
    assert isinstance(text, dict)
    return text


def expressions() -> Iterator[tuple[str, str]]:
    for rule in alerts():
        yield rule["alert"], rule["expr"]
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield f"${variable['name']}", variable["query"]["query"]


EXPRESSIONS = list(expressions())


@pytest.mark.parametrize(("place", "expression"), EXPRESSIONS, ids=[place for place, _ in EXPRESSIONS])
def test_names_exist(place: str, expression: str) -> None:
    metrics = known()
    bare = re.sub(r'"[^"]*"', '""', expression)  # what is quoted is a value
    bare = re.sub(r"\[[^\]]*\]", "", bare)
    labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", bare))
    for listed in re.findall(r"by \(([^)]*)\)", bare):
        labels |= {label.strip() for label in listed.split(",")}
    if asked := re.search(r"label_values\(.*, (\w+)\)", bare):
        labels.add(asked[1])
    names = set(re.findall(r"[a-z_]\w*", bare)) - labels - WORDS
    assert names, "it asks for nothing"
    assert names - set(metrics) == set()
    assert labels - EVERYWHERE <= set().union(*(metrics[name] for name in names))


@pytest.mark.parametrize(("place", "expression"), EXPRESSIONS, ids=[place for place, _ in EXPRESSIONS])
def test_brackets_match(place: str, expression: str) -> None:
    stack = []
    for mark in re.sub(r'"[^"]*"', "", expression):
        if mark in "([{":
            stack.append(mark)
        elif mark in ")]}":
            assert stack, expression
            assert stack.pop() + mark in ("()", "[]", "{}"), expression
    assert stack == []


def test_alerts_say_what_and_what_to_do() -> None:
    rules = alerts()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["alert"].startswith("Sandpool")
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
        used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        listed = re.findall(r"by \(([^)]*)\)", rule["expr"])
        assert used <= {label.strip() for group in listed for label in group.split(",")}, rule["alert"]


def test_panels_have_places_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
