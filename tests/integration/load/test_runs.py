"""`sandpool load` on a real cluster: what it counts is what happened, and afterwards the cluster is as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sandpool.cli.main import run
from support.product.cluster import Cluster, sandpool

GROUP = "extensions.agents.x-k8s.io/v1beta1"
EXTENSIONS = f"/apis/{GROUP}/namespaces/default"


def load(cluster: Cluster, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(sandpool("load", *arguments, *cluster.flag, "-q", "-o", "json").stdout)
    return found


@pytest.fixture(scope="module")
def burst(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("reports")
    files = ("--raw", str(folder / "run.jsonl"), "--html", str(folder / "run.html"), "--note", "a small one")
    return load(cluster, "burst", "--claims", "30", "--pool-size", "60", *files), folder


@pytest.mark.usefixtures("untouched")
def test_a_burst_is_counted_to_the_write(cluster: Cluster) -> None:
    found = load(cluster, "burst", "--claims", "20", "--pool-size", "40")
    assert (found["claims"], found["ready"], found["failed"], found["errors"]) == (20, 20, 0, 0)
    assert (found["conflicts"], found["not_found"], found["throttled"]) == (0, 0, 0)
    assert found["warm_fraction"] == 1.0
    assert found["reconciles_per_claim"] == 0.0, "served in the write that creates it"
    assert 4 <= found["writes_per_claim"] <= 6
    assert found["writes"]["over the wire"] == {"create sandboxclaims": 20}
    assert found["writes"]["controllers"]["create sandboxes"] == 20, "one refill each"
    assert "patch sandboxes" not in found["writes"]["controllers"], "the transfers were part of the claims' own writes"
    assert found["released"] == 20
    assert found["peak_waiting"] == 20


def test_the_result_says_under_which_conditions(burst: tuple[dict[str, Any], Path], cluster: Cluster) -> None:
    at = burst[0]["conditions"]
    assert (at["backend"], at["durable"], at["note"]) == ("hollow", True, "a small one")
    assert at["server_version"] == cluster.running.version
    assert burst[0]["server_cpu_s"] > 0
    assert burst[0]["server_peak_bytes"] > 1 << 20
    assert burst[0]["generator_cpu_s"] > 0


def test_raw_lines_and_the_page_hold_the_same_run(burst: tuple[dict[str, Any], Path]) -> None:
    result, folder = burst
    lines = [msgspec.json.decode(line) for line in (folder / "run.jsonl").read_bytes().splitlines()]
    assert lines[0]["result"] == result
    claims = [line for line in lines if line["kind"] == "claim"]
    assert len(claims) == 30
    assert all(0 <= line["sent"] <= line["answered"] and line["sent"] <= line["ready"] for line in claims)
    assert len({line["sandbox"] for line in claims}) == 30, "no sandbox was handed out twice"
    levels = [line["ready"] for line in lines if line["kind"] == "pool"]
    assert levels[0] == 60
    assert min(levels) < 60
    assert levels[-1] == 60
    assert "A burst of 30 claims on a pool of 60" in (folder / "run.html").read_text()


@pytest.mark.usefixtures("untouched")
def test_a_recorded_run_can_be_replayed(burst: tuple[dict[str, Any], Path], cluster: Cluster) -> None:
    found = load(cluster, "replay", str(burst[1] / "run.jsonl"), "--pool-size", "60", "--dwell", "0s")
    assert (found["claims"], found["ready"], found["released"]) == (30, 30, 30)


def test_runs_can_be_compared(burst: tuple[dict[str, Any], Path]) -> None:
    raw = str(burst[1] / "run.jsonl")
    found = msgspec.json.decode(sandpool("load", "compare", raw, raw, "-o", "json").stdout)
    assert found["measures"]["p50_ms"]["ratio"] == 1.0
    assert found["measures"]["p50_ms"]["verdict"] == "too few runs"
    assert "too few runs" in sandpool("load", "compare", raw, raw).stdout


@pytest.mark.usefixtures("untouched")
def test_a_rate_releases_as_it_goes(cluster: Cluster) -> None:
    found = load(cluster, "rate", "--rate", "40", "--for", "1s", "--dwell", "100ms", "--pool-size", "40")
    assert (found["claims"], found["ready"], found["released"], found["failed"]) == (40, 40, 40, 0)
    assert found["writes"]["over the wire"]["delete sandboxclaims"] > 0, "some were released before the end"


@pytest.mark.usefixtures("untouched")
def test_a_ramp_tells_the_highest_rate_that_was_held(cluster: Cluster) -> None:
    flags = ("--start", "10", "--factor", "2", "--most", "20", "--hold", "300ms", "--p99", "60000", "--refine", "0")
    found = load(cluster, "ramp", *flags, "--pool-size", "20")
    assert [(step["rate"], step["held"]) for step in found["steps"]] == [(10.0, True), (20.0, True)]
    assert found["highest_rate"] == 20.0
    assert found["limited_by"].startswith("nothing")


@pytest.mark.usefixtures("untouched")
def test_the_page_and_the_raw_lines_of_a_ramp_have_all_steps(cluster: Cluster, tmp_path: Path) -> None:
    flags = ("--start", "10", "--factor", "2", "--most", "20", "--hold", "300ms", "--p99", "0.001", "--refine", "1")
    kept = ("--html", str(tmp_path / "ramp.html"), "--raw", str(tmp_path / "ramp.jsonl"))
    found = load(cluster, "ramp", *flags, *kept, "--pool-size", "20")
    assert [(step["rate"], step["held"]) for step in found["steps"]] == [
        (10.0, False),
        (10.0, False),
        (5.0, False),
        (5.0, False),
    ], "each that is not held is repeated"
    assert (found["highest_rate"], found["limited_by"]) == (None, "p99")
    text = (tmp_path / "ramp.html").read_text()
    assert text.count('class="broken"') == 4
    lines = [msgspec.json.decode(line) for line in (tmp_path / "ramp.jsonl").read_bytes().splitlines()[1:]]
    claims = [line for line in lines if line["kind"] == "claim"]
    assert [line["step"] for line in claims] == [10.0] * 6 + [5.0] * 4
    moments = [line.get("scheduled", 0.0) for line in claims]
    assert moments == sorted(moments), "one step after the other"


@pytest.mark.usefixtures("untouched")
def test_bursts_can_wait_for_a_full_pool(cluster: Cluster) -> None:
    found = load(cluster, "bursts", "--claims", "10", "--times", "3", "--every", "full", "--pool-size", "10")
    assert (found["claims"], found["ready"], found["warm_fraction"]) == (30, 30, 1.0), "none met an empty pool"
    assert len(found["refills_s"]) == 3
    assert all(took > 0 for took in found["refills_s"])
    assert (found["peak_waiting"], found["released"]) == (10, 30)


@pytest.mark.usefixtures("untouched")
def test_without_a_pool_every_claim_starts_cold(cluster: Cluster) -> None:
    found = load(cluster, "burst", "--claims", "5", "--pool-size", "0")
    assert (found["ready"], found["warm_fraction"]) == (5, 0.0)


@pytest.mark.usefixtures("untouched")
def test_warmth_is_known_without_the_watch_of_sandboxes(cluster: Cluster) -> None:
    found = load(cluster, "burst", "--claims", "5", "--pool-size", "5", "--no-watch-sandboxes")
    assert (found["ready"], found["warm_fraction"]) == (5, 1.0)


@pytest.fixture
def a_pool(cluster: Cluster) -> Iterator[None]:
    pod = {"containers": [{"name": "main", "image": "host"}]}
    template = {"apiVersion": GROUP, "kind": "SandboxTemplate", "metadata": {"name": "mine"}}
    cluster.request("POST", f"{EXTENSIONS}/sandboxtemplates", {**template, "spec": {"podTemplate": {"spec": pod}}})
    pool = {"apiVersion": GROUP, "kind": "SandboxWarmPool", "metadata": {"name": "mine"}}
    spec = {"replicas": 5, "sandboxTemplateRef": {"name": "mine"}}
    cluster.request("POST", f"{EXTENSIONS}/sandboxwarmpools", {**pool, "spec": spec})
    yield
    for plural in ("sandboxwarmpools", "sandboxtemplates"):
        cluster.request("DELETE", f"{EXTENSIONS}/{plural}/mine")


@pytest.mark.usefixtures("a_pool")
def test_a_pool_that_exists_is_used_and_stays(cluster: Cluster) -> None:
    cluster.create_claim("of-a-user")
    try:
        found = load(cluster, "burst", "--claims", "5", "--pool", "mine")
        assert (found["ready"], found["load"]["pool_size"]) == (5, 5)
        assert list(cluster.claims()) == ["of-a-user"], "only what the run made is removed"
        assert cluster.request("GET", f"{EXTENSIONS}/sandboxwarmpools/mine")["spec"]["replicas"] == 5
    finally:
        cluster.request("DELETE", f"{EXTENSIONS}/sandboxclaims/of-a-user")


@pytest.mark.usefixtures("a_pool")
def test_claims_that_fail_are_counted_by_kind_and_the_command_fails(cluster: Cluster, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"offset": 0, "pool": "absent"}\n' * 3)
    flags = ("--pool", "mine", "--keep-pools", "--timeout", "1s", "-q", "-o", "json")
    done = sandpool("load", "replay", str(trace), *cluster.flag, *flags, check=False)
    found = msgspec.json.decode(done.stdout)
    assert done.returncode == 1
    assert (found["ready"], found["failed"], found["p50_ms"]) == (0, 3, None)
    (kind, count), *_ = found["errors_by_kind"].items()
    assert kind.startswith("not Ready in time (")
    assert count == 3
    assert "3 of 3 claims failed" in done.stderr
    assert cluster.claims() == {}, "they were removed all the same"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("burst", "--claims", "0"), "claims is 0"),
        (("burst", "--pool", "p", "--pool-size", "3"), "leave out --pool-size"),
        (("burst", "--html", "/absent/folder/x.html"), "--html"),
        (("burst", "--audit-log", "/absent/log"), "--audit-log"),
        (("burst", "--dwell", "soon"), "--dwell"),
        (("burst", "--connections", "0"), "--connections"),
        (("burst", "--files", "1MiB"), "such as 4096, 64Ki or 1Mi"),
        (("burst", "--files", "65Mi"), "from 1 to 64Mi"),
        (("burst", "--files", "0"), "from 1 to 64Mi"),
        (("bursts", "--every", "full", "--no-watch-sandboxes"), "--no-watch-sandboxes"),
        (("bursts", "--every", "full", "--times", "0"), "bursts is 0"),
        (("burst", "--namespace", "team"), "--namespace says where --pool is"),
        (("burst", "--context", "c"), "--kubeconfig"),
        (("burst", "--fresh"), "leave out --kubeconfig and --data-dir"),
        (("replay", "/absent/trace"), "/absent/trace"),
        (("ramp", "--factor", "1"), "--factor above 1"),
    ],
)
def test_mistakes_are_named_before_anything_happens(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert run(["load", *arguments, *cluster.flag, "-q"]) in (1, 2)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--pool", "absent"), "there is no pool absent in default"),
        (("--exec", "true", "--pool-size", "1"), "--exec goes through the router and no router is known"),
        (("--files", "1Ki", "--pool-size", "1"), "--files goes through the router and no router is known"),
        (("--metrics", "nowhere"), "--metrics"),
    ],
)
@pytest.mark.usefixtures("untouched")
def test_what_only_the_cluster_can_refuse_leaves_nothing(
    cluster: Cluster, arguments: tuple[str, ...], said: str
) -> None:
    done = sandpool("load", "burst", "--claims", "1", *arguments, *cluster.flag, "-q", check=False)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_cluster_the_ways_to_one_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["load", "burst", "--data-dir", str(tmp_path / "none")]) == 3
    said = capsys.readouterr().err
    assert "--fresh" in said
    assert "sandpool up" in said
