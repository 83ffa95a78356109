"""What programs and packages find in the pool that `sandpool up` brings, and what a handle says when its sandbox has ended."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator

import pytest

from sandpool import Config, Connection, Process, Sandbox, SandboxGone
from sandpool.model.kinds import CLAIMS, POOLS, SANDBOXES
from support.product.cluster import Cluster, running_cluster
from support.product.cluster_watch import became

PORT = 8765


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("built-in") / "data"
    with running_cluster(folder, "--backend", "namespaces", "--pool", "python=1") as found:
        became(found.data_dir, POOLS, lambda pools: pools["python"].status.ready_replicas == 1)
        yield found


@pytest.fixture
def box(cluster: Cluster) -> Iterator[Sandbox]:
    with Sandbox.claim("python", config=Config(data_dir=cluster.data_dir), timeout=60) as claimed:
        yield claimed


def wheel(name: str) -> bytes:
    """Of a package with one function."""
    about = f"{name}-1.dist-info"
    files = {
        f"{name}.py": "def answer(): return 42\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD"))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(path, text)
    return made.getvalue()


def test_what_a_program_prints_is_seen_while_it_runs(box: Sandbox) -> None:
    program = "import time; print('begun'); time.sleep(1000)"
    with box.stream(["python3", "-c", program], timeout=30) as output:
        assert next(iter(output)).text.startswith("begun")


def test_pip_installs_from_an_index(box: Sandbox) -> None:
    """The index is one on the sandbox's own loopback: nothing is asked of any other network."""
    box.files.write("index/greet/greet-1-py3-none-any.whl", wheel("greet"))
    with box.start(
        ["python3", "-m", "http.server", str(PORT), "--bind", "127.0.0.1", "--directory", "index"]
    ) as server:
        _heard(server, "Serving HTTP")
        done = box.run(["pip", "install", "--index-url", f"http://127.0.0.1:{PORT}/", "greet"], check=True)
    assert "Successfully installed greet-1" in done.stdout
    found = box.run(["python3", "-c", "import greet; print(greet.answer(), greet.__file__)"], cwd="/", check=True)
    assert found.stdout.startswith("42 /workspace/.local/lib/python")


def test_pip_installs_wheels_that_were_uploaded(box: Sandbox) -> None:
    box.files.write("wheels/parted-1-py3-none-any.whl", wheel("parted"))
    box.run("pip install --no-index --find-links wheels parted", check=True)
    assert box.run("python3 -c 'import parted; print(parted.answer())'", check=True).stdout == "42\n"


def _heard(process: Process, words: str) -> None:
    said = ""
    while words not in said:
        output = process.read(timeout=60)
        assert output is not None, said
        said += output.text


def test_after_its_end_every_call_says_that_it_is_gone(cluster: Cluster) -> None:
    config = Config(data_dir=cluster.data_dir)
    with Connection(config) as connection, Sandbox.claim("python", connection=connection, timeout=60) as box:
        server = box.start("sleep 1000")
        terminal = box.terminal("cat")
        attached = Sandbox.attach(box.name, connection=connection)
        box.extend(1)
        became(cluster.data_dir, CLAIMS, lambda claims: box.name not in claims)
        became(cluster.data_dir, SANDBOXES, lambda found: box.sandbox not in found)
        calls: dict[str, Callable[[], object]] = {
            "run": lambda: box.run("true"),
            "a list": lambda: box.run(["true"], stdin=iter([b"x"])),
            "stream": lambda: list(box.stream("true")),
            "start": lambda: box.start("true"),
            "terminal": lambda: box.terminal("true"),
            "process": lambda: box.process(server.id),
            "processes": box.processes,
            "read": lambda: box.files.read("x"),
            "write": lambda: box.files.write("x", b"y"),
            "write much": lambda: box.files.write("x", iter([b"y" * 100_000] * 10)),
            "list": lambda: box.files.list("."),
            "exists": lambda: box.files.exists("x"),
            "url": lambda: box.url(8000),
            "info": box.info,
            "extend": lambda: box.extend(60),
            "suspend": box.suspend,
            "resume": box.resume,
            "poll": server.poll,
            "wait": server.wait,
            "kill": server.kill,
            "output": lambda: list(server),
            "stdin": lambda: server.stdin.write("x"),
            "type": lambda: terminal.write("x"),
            "show": lambda: list(terminal),
            "attached": lambda: attached.run("true"),
        }
        said = {name: _raised(call) for name, call in calls.items()}
        assert {name: type(error) for name, error in said.items()} == dict.fromkeys(calls, SandboxGone), said
        for name, error in said.items():
            assert box.name in str(error) or box.sandbox in str(error), name
        attached.close()


def _raised(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except Exception as error:
        return error
    return None
