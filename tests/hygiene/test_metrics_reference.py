"""The reference page of metrics lists every metric there is, with its type and labels, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from sandpool.telemetry import families
from sandpool.telemetry.metrics import Metrics
from sandpool.telemetry.router_metrics import RouterMetrics
from support.product.declared_metrics import declared_metrics

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"
Line = tuple[str, str, tuple[str, ...]]


def declared() -> set[Line]:
    registry = Metrics().registry
    RouterMetrics(registry)
    found = {line(*metric) for metric in declared_metrics(registry)}
    return found | {
        line(family.name, "counter" if family.counter else "gauge", family.labels) for family in families.ALL
    }


def line(name: str, kind: str, labels: tuple[str, ...]) -> Line:
    return name + ("_total" if kind == "counter" else ""), kind, tuple(labels)


def documented() -> set[Line]:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*)\|", PAGE.read_text(), re.MULTILINE)
    return {(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def test_the_page_has_every_metric_and_no_other() -> None:
    assert declared() == documented()
