"""What a registry of metrics declares. The library has no public way to ask for labels, so this is the one place that looks inside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase


class Declared(NamedTuple):
    name: str  # without the suffixes that samples have
    kind: str
    labels: tuple[str, ...]


def declared_metrics(registry: CollectorRegistry) -> Iterator[Declared]:
    """Of each metric that keeps its own value; families that are read when somebody scrapes are in `telemetry.families.ALL`."""
    for metric in registry._collector_to_names:
        if isinstance(metric, MetricWrapperBase):
            yield Declared(metric._name, str(metric._type), tuple(metric._labelnames))
