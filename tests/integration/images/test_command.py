"""`sandpool image`, as root and as an ordinary user."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandpool.cli.main import run
from sandpool.controlplane.data_dir import DataDir
from sandpool.node.directory import images_of
from support.images.files import file, folder, make_image, opaque, removed, write_oci_archive
from support.images.real_registry import basic, push
from support.images.small_registry import PASSWORD, USER, small_registry
from support.images.store import image_store

IMAGE = make_image(
    [folder("d", 0o500), file("d/a", "1", mode=0o4755, uid=7)], [removed("d/a"), file("e/b"), opaque("e")]
)


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture
def image(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `sandpool image ...` in this process."""

    def command(*arguments: str, given: str = "") -> Done:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        monkeypatch.setenv("SANDPOOL_DATA_DIR", str(tmp_path / "data"))
        code = run(["image", *arguments])
        return Done(code, *capsys.readouterr())

    return command


def test_the_life_of_an_image(tmp_path: Path, image: Command) -> None:
    archive = write_oci_archive(tmp_path / "a.tar", {"tool:1": IMAGE})
    done = image("import", str(archive))
    assert (done.returncode, done.stdout, done.stderr) == (0, "docker.io/library/tool:1\n", "")
    done = image("import", str(archive), "tool:2")
    assert done.stdout == "docker.io/library/tool:2\n"
    (listed,) = json.loads(image("list", "-o", "json").stdout)
    assert listed["names"] == ["docker.io/library/tool:1", "docker.io/library/tool:2"]
    assert listed["id"] == IMAGE.id
    assert listed["holders"] == []
    table = image("list").stdout.splitlines()
    assert table[0].split() == ["NAME", "ID", "SIZE", "AGE", "USED", "HOLDERS"]
    assert [line.split()[0] for line in table[1:]] == listed["names"]
    assert image("prune").stdout == ""  # imported ones are kept
    assert image("remove", "tool:1", "tool:2").returncode == 0
    assert image("list", "-o", "json").stdout == "[]\n"
    assert list((tmp_path / "data/node/images/layers").iterdir()) == []


async def test_pulling_with_a_login(tmp_path: Path, image: Command) -> None:
    async def run(*arguments: str, given: str = "") -> Done:
        return await asyncio.to_thread(image, *arguments, given=given)

    async with small_registry(login="basic") as registry:
        await push(registry.address, "tool", "1", IMAGE, authorization=basic())
        name = f"{registry.address}/tool:1"
        refused = await run("pull", name)
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"sandpool: image {name}: ")
        done = await run("pull", name, "--username", USER, "--password-stdin", given=PASSWORD + "\n")
        assert (done.stdout, done.stderr) == (f"{IMAGE.id}\n", "")
        (tmp_path / "config.json").write_text(
            json.dumps({"auths": {registry.address: {"username": USER, "password": PASSWORD}}})
        )
        again = await run("pull", name, "--auth-file", str(tmp_path / "config.json"))
        assert again.stdout == f"{IMAGE.id}\n"
    async with image_store(images_of(DataDir(tmp_path / "data").node)) as store:
        await store.take(name, holder="default/pod")
        held = await run("remove", name)
        assert held.returncode == 1
        assert "in use by default/pod" in held.stderr
        assert "default/pod" in (await run("list")).stdout
        assert (await run("prune")).stderr == "0 removed, 0 B freed\n"
    assert (await run("prune", "--unused-for", "1h")).stdout == ""
    assert (await run("prune", "--max-size", "1Gi")).stdout == ""
    assert (await run("prune", "--max-size", "1k")).stdout == f"{name}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["remove", "missing"], 3, "there is no image docker.io/library/missing:latest"),
        (["remove", "sha256:00"], 3, "no image begins with"),
        (["remove"], 2, "name an image"),
        (["pull", "Wrong"], 2, "lower case"),
        (["pull", "127.0.0.1:1/x", "--username", "u"], 2, "together"),
        (["pull", "127.0.0.1:1/x", "--auth-file", "/dev/null"], 2, "is not JSON"),
        (["import", "/missing"], 1, "No such file"),
        (["prune", "--max-size", "many"], 2, "--max-size 'many'"),
        (["prune", "--unused-for", "long"], 2, "--unused-for 'long'"),
        (["wrong"], 2, ""),
    ],
)
def test_mistakes(image: Command, arguments: list[str], code: int, why: str) -> None:
    done = image(*arguments)
    assert done.returncode == code, done.stderr
    assert why in done.stderr
    assert "Traceback" not in done.stderr
