"""What a process uses, on its page of metrics."""

from __future__ import annotations

from sandpool.telemetry.metrics import Metrics


def test_a_process_is_shown_only_when_asked_for() -> None:
    metrics = Metrics()
    assert b"process_cpu_seconds_total" not in metrics.expose()
    metrics.show_process()
    page = dict(line.split(" ") for line in metrics.expose().decode().splitlines() if line.startswith("process_"))
    assert float(page["process_cpu_seconds_total"]) > 0
    assert float(page["process_resident_memory_bytes"]) > 1 << 20
