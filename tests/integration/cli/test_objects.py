"""Commands about objects, on a real cluster whose pods run nothing: what they print, where, and how they end."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import yaml

from sandpool.cli.main import run
from sandpool.model.kinds import TEMPLATES
from sandpool.model.labels import pool_selector
from sandpool.node.runtimes.fake import START_ERROR
from support.product.cluster import COMMAND, Cluster, running_cluster

SELECTOR = pool_selector("wrong")
CLAIM = "sandboxclaim.extensions.agents.x-k8s.io"


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


Sandpool = Callable[..., Said]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(
        tmp_path_factory.mktemp("objects") / "data", "--backend", "hollow", "--pool", "python=2"
    ) as found:
        assert run(["pool", "rollout", "status", "python", *found.flag]) == 0
        yield found


@pytest.fixture
def sandpool(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> Iterator[Sandpool]:
    """A command in this process; claims that it made are gone afterwards."""

    def call(*arguments: str) -> Said:
        capfd.readouterr()
        at = arguments.index("--") if "--" in arguments else len(arguments)
        code = run([*arguments[:at], *cluster.flag, *arguments[at:]])
        return Said(code, *capfd.readouterr())

    yield call
    run(["release", "--all", *cluster.flag])


def test_a_claim_from_beginning_to_end(sandpool: Sandpool) -> None:
    made = sandpool("claim", "python", "--name", "mine", "--label", "team=red", "--ttl", "1h")
    assert (made.code, made.out) == (0, "mine\n")
    assert "sandpool release mine" in made.err
    header, line = sandpool("ls").out.splitlines()
    assert header.split() == ["NAME", "STATE", "POOL", "SANDBOX", "AGE", "ENDS"]
    assert line.split()[:3] == ["mine", "Ready", "python"]
    body = json.loads(sandpool("get", "claim", "mine", "-o", "json").out)
    assert body["metadata"]["labels"]["team"] == "red"
    assert body["spec"]["lifecycle"]["shutdownPolicy"] == "Delete"
    assert sandpool("release", "mine") == Said(0, "mine\n", "")
    assert sandpool("get", "claim", "mine").code == 3
    assert sandpool("ls").out == ""


def test_a_claim_can_be_printed_whole(sandpool: Sandpool) -> None:
    said = sandpool("claim", "python", "-o", "yaml")
    assert yaml.safe_load(said.out)["kind"] == "SandboxClaim"
    said = sandpool("claim", "python", "-o", "jsonpath={.status.sandbox.name}")
    assert said.out.startswith("python-")


def test_a_claim_without_a_pool_leaves_nothing_behind(sandpool: Sandpool) -> None:
    said = sandpool("claim", "nothing")
    assert (said.code, said.out) == (3, "")
    assert "sandpool get pools" in said.err
    assert sandpool("get", "claims", "-o", "name").out == ""


def test_a_claim_that_comes_too_late_leaves_nothing_behind(cluster: Cluster, sandpool: Sandpool) -> None:
    nowhere = {"containers": [{"name": "main", "image": "host"}], "nodeSelector": {"no": "such"}}
    body = {
        "apiVersion": TEMPLATES.api_version,
        "kind": TEMPLATES.kind,
        "metadata": {"name": "nowhere"},
        "spec": {"podTemplate": {"spec": nowhere}},
    }
    cluster.request("POST", TEMPLATES.path("default"), body)
    assert sandpool("pool", "create", "nowhere", "--template", "nowhere", "--replicas", "0").out == "nowhere\n"
    said = sandpool("claim", "nowhere", "--timeout", "1s")
    assert (said.code, said.out) == (4, ""), said
    assert "is not ready after 1 s" in said.err
    assert sandpool("get", "claims", "-o", "name").out == ""


def test_get_in_every_form(sandpool: Sandpool) -> None:
    sandpool("claim", "python", "--name", "one")
    sandpool("claim", "python", "--name", "two", "--label", "team=red")
    assert sandpool("get", "claims", "-o", "name").out == f"{CLAIM}/one\n{CLAIM}/two\n"
    assert sandpool("get", "claims", "-l", "team=red", "-o", "name").out == f"{CLAIM}/two\n"
    assert sandpool("get", f"{CLAIM}/two", "-o", "name").out == f"{CLAIM}/two\n"
    assert sandpool("get", "claims", "-o", "jsonpath={.items[*].metadata.name}").out == "one two"
    listed = json.loads(sandpool("get", "claims", "-o", "json").out)
    assert (listed["kind"], [item["kind"] for item in listed["items"]]) == ("List", ["SandboxClaim"] * 2)
    assert len(sandpool("get", "claim", "one", "two", "--no-headers").out.splitlines()) == 2
    assert sandpool("get", "claims", "-A").out.splitlines()[1].split()[:2] == ["default", "one"]
    assert "POOL" in sandpool("get", "claims", "-o", "wide").out
    both = sandpool("get", "claims,pools").out.split("\n\n")
    assert [table.split()[0] for table in both] == ["NAME", "NAME"]
    assert sandpool("get", "nodes", "--no-headers").out.startswith("local ")


def test_nothing_there_is_talk_not_data(sandpool: Sandpool) -> None:
    assert sandpool("get", "claims") == Said(0, "", "There are no claims in namespace default.\n")
    assert json.loads(sandpool("get", "claims", "-o", "json").out)["items"] == []
    assert "sandpool claim POOL" in sandpool("ls").err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("get", "claim", "nope"), 3, "sandpool get claims -A"),
        (("get", "moon"), 2, "claim, sandbox, pool"),
        (("get",), 2, "sandpool get claims"),
        (("get", "claims", "-o", "xml"), 2, "jsonpath"),
        (("get", "claim", "a", "-A"), 2, "leave out -A"),
        (("get", "claims", "-l", "a=b=c"), 1, "Fix the named field"),
        (("describe", "pool/nope"), 3, "sandpool get pools -A"),
        (("wait", "claim/nope", "--for=condition=Ready"), 3, "sandpool get claims -A"),
        (("wait", "claims", "--for=condition=Ready"), 2, "--selector"),
        (("wait", "pool/python", "--for=tea"), 2, "condition=Ready"),
        (("release",), 2, "sandpool ls"),
        (("release", "nope"), 3, "sandpool ls -A"),
        (("release", "pool/python"), 2, "only claims"),
        (("suspend", "nope"), 3, "sandpool get claims -A"),
        (("pool", "scale", "nope", "3"), 3, "sandpool get pools -A"),
        (("pool", "scale", "python", "-1"), 2, "0 or more"),
        (("pool", "create", "x"), 2, "--image"),
        (("pool", "create", "X_Y", "--image", "i"), 2, "name of a pool"),
        (("pool", "create", "x", "--template", "nope"), 3, "sandpool get templates -A"),
        (("pool", "create", "python", "--template", "python"), 1, "sandpool pool scale"),
        (("exec", "nope", "--", "true"), 125, "sandpool get claims -A"),
        (("exec", "nope"), 2, "after --"),
        (("cp", "a", "b"), 2, "NAME:PATH"),
        (("cp", "/no/such/file", "x:y"), 3, "check the path"),
        (("logs", "nope"), 3, "sandpool get claims -A"),
        (("port-forward", "nope", "80"), 3, "sandpool get claims -A"),
        (("port-forward", "nope"), 2, "LOCAL:REMOTE"),
        (("ls", "--kubeconfig", "/no/such"), 2, "use only one"),
    ],
)
def test_every_mistake_ends_with_what_to_do(
    sandpool: Sandpool, arguments: tuple[str, ...], code: int, words: str
) -> None:
    said = sandpool(*arguments)
    assert (said.code, said.out) == (code, ""), said
    assert words in said.err
    assert "Traceback" not in said.err


def test_waiting(sandpool: Sandpool) -> None:
    sandpool("claim", "python", "--name", "mine")
    assert sandpool("wait", "claim/mine", "--for=condition=Ready").code == 0
    assert sandpool("wait", "claims", "-l", "none=such", "--for=delete").code == 0
    late = sandpool("wait", "claim/mine", "--for=condition=Finished", "--timeout", "10ms")
    assert (late.code, late.out) == (4, "")
    assert "sandpool" in late.err
    assert sandpool("wait", "pool/python", "--for=jsonpath={.spec.replicas}=2").code == 0
    assert sandpool("wait", "claim/mine", "--for=delete", "--timeout", "10ms").code == 4


def test_describe_tells_what_to_do(sandpool: Sandpool) -> None:
    sandpool("claim", "python", "--name", "mine")
    said = sandpool("describe", "claim/mine").out
    assert "SandboxAdopted" in said
    assert "What to do" not in said
    would = sandpool("suspend", "--dry-run", "mine")
    assert (would.code, would.out) == (0, "")
    assert would.err.startswith("mine: no file is kept: ")
    assert sandpool("ls").out.splitlines()[1].split()[1] == "Ready"
    done = sandpool("suspend", "mine")
    assert (done.out, done.err) == ("mine\n", would.err)
    said = sandpool("describe", "claim", "mine").out
    assert "What to do:\n  - `sandpool resume claim/mine -n default` resumes it\n" in said
    assert sandpool("ls").out.splitlines()[1].split()[1] == "Suspended"
    assert sandpool("resume", "claim/mine").out == "claim/mine\n"
    assert sandpool("ls").out.splitlines()[1].split()[1] == "Ready"


def test_pools(sandpool: Sandpool) -> None:
    made = sandpool(
        "pool", "create", "tools", "--image", "registry.example.com/tools:1", "--replicas", "1", "--", "serve", "-v"
    )
    assert (made.code, made.out) == (0, "tools\n")
    container = sandpool("get", "template/tools", "-o", "jsonpath={.spec.podTemplate.spec.containers[0]}").out
    assert json.loads(container)["command"] == ["serve", "-v"]
    done = sandpool("pool", "rollout", "status", "tools")
    assert (done.code, done.out) == (0, "pool tools: 1 of 1 ready\n")
    scaled = sandpool("pool", "scale", "tools", "2")
    assert (scaled.out, "scaled from 1 to 2" in scaled.err) == ("tools\n", True)
    assert sandpool("pool", "rollout", "status", "tools").out == "pool tools: 2 of 2 ready\n"
    assert sandpool("pool", "rollout", "status", "tools", "--no-watch").code == 0


def test_what_survives_a_suspension_is_said_before_it(cluster: Cluster, sandpool: Sandpool) -> None:
    main = {"name": "main", "image": "host", "volumeMounts": [{"name": "work", "mountPath": "/workspace"}]}
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    spec = {
        "podTemplate": {"spec": {"containers": [main]}},
        "volumeClaimTemplates": [{"metadata": {"name": "work"}, "spec": storage}],
    }
    body = {"apiVersion": TEMPLATES.api_version, "kind": TEMPLATES.kind, "metadata": {"name": "lasting"}, "spec": spec}
    cluster.request("POST", TEMPLATES.path("default"), body)
    sandpool("pool", "create", "lasting", "--template", "lasting", "--replicas", "1")
    sandpool("claim", "lasting", "--name", "mine")
    said = sandpool("suspend", "mine")
    assert said.out == "mine\n"
    assert said.err.startswith("mine: files in /workspace are kept; all other files are lost")


def test_a_pod_that_cannot_start_is_told_with_its_reason(cluster: Cluster, sandpool: Sandpool) -> None:
    pod = {
        "metadata": {"annotations": {START_ERROR: "ErrImagePull"}},
        "spec": {"containers": [{"name": "main", "image": "wrong"}]},
    }
    body = {
        "apiVersion": TEMPLATES.api_version,
        "kind": TEMPLATES.kind,
        "metadata": {"name": "wrong"},
        "spec": {"podTemplate": pod},
    }
    cluster.request("POST", TEMPLATES.path("default"), body)
    sandpool("pool", "create", "wrong", "--template", "wrong", "--replicas", "1")
    assert sandpool("wait", "pool/wrong", "--for=condition=Healthy=False", "--timeout", "60s").code == 0
    for command in (("why", "pool/wrong"), ("describe", "pool/wrong")):
        assert "container main waits: ImagePullBackOff: " in sandpool(*command).out, command
    assert "Check the image's name" in sandpool("describe", "pool/wrong").out
    late = sandpool("claim", "wrong", "--timeout", "8s")
    assert late.code == 4
    assert "container main waits: ImagePullBackOff: " in late.err
    cluster.create_claim("mine", "wrong")
    assert sandpool("wait", "claim/mine", "--for=condition=Ready=False", "--timeout", "60s").code == 0
    for command in (("why", "claim/mine"), ("describe", "claim/mine")):
        assert "ImagePullBackOff" in sandpool(*command).out, command
    (member,) = json.loads(sandpool("get", "sandboxes", "-l", SELECTOR, "-o", "json").out)["items"]
    told = sandpool("why", f"sandbox/{member['metadata']['name']}").out
    assert "  container main waiting: ErrImagePull, " in told


def test_release_by_label(sandpool: Sandpool) -> None:
    for name, team in (("a", "red"), ("b", "red"), ("c", "blue")):
        sandpool("claim", "python", "--name", name, "--label", f"team={team}")
    assert sorted(sandpool("release", "-l", "team=red").out.split()) == ["a", "b"]
    missing = sandpool("release", "c", "a")
    assert (missing.code, missing.out) == (3, "c\n")
    assert sandpool("release", "a", "--ignore-not-found").code == 0


def test_a_watch_gives_one_object_a_line_until_interrupted(cluster: Cluster, sandpool: Sandpool) -> None:
    command = [*COMMAND, "get", "claims", "-w", "-o", "json", *cluster.flag]
    sandpool("claim", "python", "--name", "before")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        assert (first["kind"], first["metadata"]["name"]) == ("SandboxClaim", "before")
        sandpool("claim", "python", "--name", "after")
        while json.loads(watching.stdout.readline())["metadata"]["name"] != "after":
            pass
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=30)
    assert watching.returncode == 130


def test_ls_watches_states(cluster: Cluster, sandpool: Sandpool) -> None:
    command = [*COMMAND, "ls", "-w", *cluster.flag]
    sandpool("claim", "python", "--name", "mine")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        assert watching.stdout.readline().split()[1] == "Ready"
        sandpool("suspend", "mine")
        assert watching.stdout.readline().split()[1] == "Suspended"
        sandpool("release", "mine")
        assert watching.stdout.readline().split()[1] == "Terminating"
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=30)


def test_names_are_completed(cluster: Cluster, sandpool: Sandpool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDPOOL_DATA_DIR", str(cluster.data_dir))
    sandpool("claim", "python", "--name", "mine")

    def offered(*words: str) -> set[str]:
        done = subprocess.run([*COMMAND, "__complete", *words], capture_output=True, text=True, check=True, timeout=60)
        return set(done.stdout.partition("\x1fbegin\n")[2].split())

    assert offered("exec", "") == {"mine"}
    assert "python" in offered("claim", "")
    assert "pool/python" in offered("get", "pool/p")
    assert "mine" in offered("get", "claim", "")
    assert "mine:" in offered("cp", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_are_printed(shell: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    text = capfd.readouterr().out
    assert "port-forward" in text
    assert "__complete" in text


def test_no_cluster_at_all(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("HOME", "XDG_DATA_HOME", "SANDPOOL_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert run(["ls"]) == 3
    assert "sandpool up" in capfd.readouterr().err
