from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from sandpool.telemetry.metrics import Metrics, exposed


def shown(*several: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = list(text_string_to_metric_families(exposed(several).decode()))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "each family is declared once"
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_one_set_is_shown_as_it_is() -> None:
    metrics = Metrics()
    assert exposed([metrics]) == metrics.expose()


def test_the_same_series_are_added_up_and_others_stand_beside_each_other() -> None:
    one, two = Metrics(), Metrics()
    one.called("get", "pods", "ok", 0.002)
    two.called("get", "pods", "ok", 0.002)
    two.called("get", "pods", "Conflict", 0.002)
    one.queue_depth.labels("claim").set_function(lambda: 3)
    two.queue_depth.labels("claim").set_function(lambda: 4)
    found = shown(one, two)
    labels = (("resource", "pods"), ("verb", "get"))
    assert found["sandpool_client_requests_total", (("outcome", "ok"), *labels)] == 2
    assert found["sandpool_client_requests_total", (("outcome", "Conflict"), *labels)] == 1
    assert found["sandpool_client_request_seconds_count", labels] == 3
    assert found["sandpool_client_request_seconds_bucket", (("le", "0.0025"), *labels)] == 3
    assert found["sandpool_queue_depth", (("controller", "claim"),)] == 7


def test_what_is_no_count_is_not_added_up() -> None:
    one, two = Metrics(), Metrics()
    once = {key: value for key, value in shown(one).items() if key[0].endswith("_info")}
    assert {key: value for key, value in shown(one, two).items() if key[0].endswith("_info")} == once
    births = [value for key, value in shown(one, two).items() if key[0].endswith("_created")]
    assert max(births, default=0.0) < 1e10  # a moment of this century, not the sum of two
