"""Several sets of metrics as one page: what two sets of controllers count under the same name and labels is added up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from sandpool.telemetry.metrics import Metrics

_Series = tuple[str, tuple[tuple[str, str], ...]]


def exposed(several: Sequence[Metrics]) -> bytes:
    return several[0].expose() if len(several) == 1 else generate_latest(_Merged(several))


class _Merged(Collector):
    def __init__(self, several: Sequence[Metrics]) -> None:
        self._several = several

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        samples: dict[str, dict[_Series, Sample]] = {}
        for metrics in self._several:
            for family in metrics.registry.collect():
                families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                known = samples.setdefault(family.name, {})
                for sample in family.samples:
                    series = (sample.name, tuple(sorted(sample.labels.items())))
                    known[series] = _sum(known[series], sample) if series in known else sample
        for name, family in families.items():
            family.samples = list(samples[name].values())
            yield family


def _sum(one: Sample, other: Sample) -> Sample:
    if one.name.endswith("_created"):  # a moment: since when it is counted
        return one._replace(value=min(one.value, other.value))
    if one.name.endswith("_info"):
        return one
    return one._replace(value=one.value + other.value)
