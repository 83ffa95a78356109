"""What `sandpool up` is told about its first pools, its registries, and folders of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.main import run
from sandpool.cli.node_flags import NodeFlags, unheld_notice
from sandpool.install.first_pool import NO_POOLS, STANDARD, FirstPools
from sandpool.node.network.egress_rules import UNLIMITED, ceiling_of


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


@pytest.mark.parametrize(
    ("backend", "unheld", "said"),
    [
        ("namespaces", (), []),
        ("process", ("cpu", "memory"), []),
        (
            "namespaces",
            ("cpu", "memory"),
            ["limits of CPU and memory.", "Memory is limited for each process alone.", "systemd-run --user --scope"],
        ),
        ("gvisor", ("cpu", "memory", "pids"), ["limits of CPU, memory and processes.", "systemd-run"]),
        ("namespaces", ("storage",), ["limits of disk space."]),
    ],
)
def test_limits_that_do_not_hold_are_said(backend: str, unheld: tuple[str, ...], said: list[str]) -> None:
    told = " ".join(unheld_notice(backend, unheld))
    assert bool(told) == bool(said)
    assert all(words in told for words in said), told
    assert ("each process alone" in told) == (backend == "namespaces" and "memory" in unheld)


def test_registries() -> None:
    assert NodeFlags().images().registries == ("public",)
    flags = NodeFlags(registry=("public", "localhost:5000"), insecure_registry=("plain.example",))
    options = flags.images()
    assert (options.registries, options.insecure_registries) == (("public", "localhost:5000"), ("plain.example",))
    assert [one for one in flags.arguments() if "registry" in one] == [
        "--registry=public", "--registry=localhost:5000", "--insecure-registry=plain.example",
    ]  # fmt: skip


def test_what_tenants_may_choose_and_reach_travels_with_the_command() -> None:
    flags = NodeFlags(allow_runtime=("gvisor",), allow_egress=("10.0.0.0/8:443", "2001:db8::/32"))
    assert flags.runtimes() == ("gvisor",)
    assert flags.ceiling() == ceiling_of(["10.0.0.0/8:443", "2001:db8::/32"])
    assert [one for one in flags.arguments() if "allow" in one] == [
        "--allow-runtime=gvisor",
        "--allow-egress=10.0.0.0/8:443",
        "--allow-egress=2001:db8::/32",
    ]
    assert (NodeFlags().runtimes(), NodeFlags().ceiling()) == ((), UNLIMITED)


@pytest.mark.parametrize(
    ("text", "size", "arguments"),
    [("", None, []), ("0", 0, ["--disk-reserve=0"]), ("512Mi", 512 << 20, ["--disk-reserve=512Mi"])],
)
def test_reserve(text: str, size: int | None, arguments: list[str]) -> None:
    flags = NodeFlags(disk_reserve=text)
    assert flags.reserve() == size
    assert [one for one in flags.arguments() if "reserve" in one] == arguments


def test_a_limit_of_disk_bandwidth() -> None:
    assert NodeFlags().io_rate() is None
    flags = NodeFlags(io_limit="50Mi")
    assert flags.io_rate() == 50 << 20
    assert "--io-limit=50Mi" in flags.arguments()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--allow-egress", "10.0.0.1/8"], "--allow-egress '10.0.0.1/8': 10.0.0.1/8 has host bits set; write CIDR or"),
        (["--allow-egress", "none", "--allow-egress", "10.0.0.0/8"], "--allow-egress 'none' means that nothing can be"),
        (["--allow-egress", "10.0.0.0/8", "--backend", "process"], "--allow-egress does not go with --backend process"),
        (["--allow-runtime", "gvisor", "--backend", "hollow"], "--allow-runtime does not go with --backend hollow"),
        (["--disk-reserve", "lots"], "--disk-reserve lots: "),
        (["--disk-reserve", "1Mi"], "--disk-reserve 1Mi: choose 0, or a size from 16Mi to 64Gi"),
        (["--disk-reserve", "100Gi"], "--disk-reserve 100Gi: choose 0, or a size from 16Mi to 64Gi"),
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
        (["--registry", "http://r.example"], "--registry 'http://r.example': write HOST, HOST:PORT or HOST:*"),
        (["--registry", "r.example:0", "--detach"], "--registry 'r.example:0': write HOST"),
        (["--insecure-registry", "public"], "--insecure-registry 'public': name each registry"),
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


@pytest.mark.parametrize(
    ("host", "image", "said"),
    [
        ("srv", "roots", ""),
        ("roots/shared", "roots", ""),  # what pods write there is theirs; nothing leads out of it
        ("srv", "srv", "--allow-image-folder"),
        ("srv", "srv/deep/roots", "--allow-image-folder"),
        ("link", "srv/roots", "--allow-image-folder"),
        ("srv", "link/roots", "--allow-image-folder"),
        (".", "roots", "the data directory"),
        ("data", "roots", "the data directory"),
        ("data/volumes", "roots", "the data directory"),
    ],
)
def test_pods_write_to_nothing_that_the_machine_trusts(tmp_path: Path, host: str, image: str, said: str) -> None:
    for name in ("srv", "roots", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("srv")
    flags = NodeFlags(allow_host_path=(tmp_path / host,), allow_image_folder=(tmp_path / image,))
    if not said:
        flags.check(tmp_path / "data")
        return
    with pytest.raises(Exit, match=r"^--allow-host-path .* contains, or lies in, ") as refused:
        flags.check(tmp_path / "data")
    assert said in str(refused.value)
