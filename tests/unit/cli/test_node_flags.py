"""What `sandpool up` is told about its first pools."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.assembly.first_pool import NO_POOLS, STANDARD, FirstPools
from sandpool.cli.exits import USAGE
from sandpool.cli.main import run
from sandpool.cli.node_flags import NodeFlags


@pytest.mark.parametrize(
    ("flags", "wanted", "arguments"),
    [
        (NodeFlags(), STANDARD, []),
        (NodeFlags(pool=()), NO_POOLS, ["--no-pool"]),
        (NodeFlags(pool=("none",)), NO_POOLS, ["--no-pool"]),
        (NodeFlags(backend="none"), NO_POOLS, []),
        (NodeFlags(backend="process"), NO_POOLS, []),
        (NodeFlags(backend="hollow"), STANDARD, []),
        (NodeFlags(backend="none", pool=("none",)), NO_POOLS, ["--no-pool"]),
        (
            NodeFlags(pool=("python=0", "my.data=20")),
            FirstPools({"python": 0, "my.data": 20}, scale=True),
            ["--pool=python=0", "--pool=my.data=20"],
        ),
    ],
)
def test_pools(flags: NodeFlags, wanted: FirstPools, arguments: list[str]) -> None:
    assert flags.pools() == wanted
    assert [one for one in flags.arguments() if "pool" in one] == arguments


def test_a_limit_of_disk_bandwidth() -> None:
    assert NodeFlags().io_rate() is None
    flags = NodeFlags(io_limit="50Mi")
    assert flags.io_rate() == 50 << 20
    assert "--io-limit=50Mi" in flags.arguments()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--pool", "python"],
            "--pool python: write NAME=N, such as python=3, with a number of members from 0 to 10000",
        ),
        (["--pool", "python=x"], "--pool python=x: write NAME=N"),
        (["--pool", "python=-1"], "--pool python=-1: write NAME=N"),
        (["--pool", "python=99999999999999"], "--pool python=99999999999999: write NAME=N"),
        (["--pool", "=3"], "--pool =3: '' cannot be the name of a pool: "),
        (["--pool", "My=3"], "--pool My=3: 'My' cannot be the name of a pool: a lowercase RFC 1123 subdomain"),
        (
            ["--pool", "a=1", "--backend", "process"],
            "--pool (or SANDPOOL_POOL) does not go with --backend process: its template needs",
        ),
        (["--io-limit", "fast"], "--io-limit fast: "),
        (["--io-limit", "100k"], "--io-limit 100k is less than 1Mi a second; no pod would start"),
        (["--pool", "a=1", "--backend", "none"], "--pool (or SANDPOOL_POOL) does not go with --backend none"),
    ],
)
def test_mistakes(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SANDPOOL_DATA_DIR", str(tmp_path / "data"))
    assert run(["up", *arguments]) == USAGE
    assert said in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
