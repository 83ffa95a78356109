"""`sandpool why` without a cluster: what is asked for, and how a story reads."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from typing import Any
from urllib.parse import unquote

import pytest

from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.history import document, nothing_remembered, related_objects, text, timeline, word_of
from sandpool.cli.why import asked
from sandpool.kube.local_discovery import Running

EXT = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default"
CLAIM, POOL, TEMPLATE = f"{EXT}/sandboxclaims/c", f"{EXT}/sandboxwarmpools/python", f"{EXT}/sandboxtemplates/t"
SANDBOX = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes"
POD = "/api/v1/namespaces/default/pods/python-1"
STORIES = "/sandpool/stories/default"


def condition(type_: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    since = "2026-01-02T03:04:05Z"
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def entry(when: str, trigger: str, plan: str, outcome: str = "done") -> dict[str, Any]:
    when = f"2026-01-02T03:04:{when}Z"
    return {"when": when, "seconds": 0.0015, "rid": "r", "trigger": trigger, "plan": plan, "outcome": outcome}


def event(kind: str, name: str, reason: str, message: str, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {}, "type": "Normal", "reason": reason, "message": message, "lastTimestamp": "2026-01-02T03:04:05Z",
        "involvedObject": {"kind": kind, "name": name, "uid": f"{name}-uid"}, **more,
    }  # fmt: skip


class Cluster:
    """Paths and what is there."""

    def __init__(self, pages: dict[str, Any], events: list[dict[str, Any]]) -> None:
        self.pages, self.events, self.asked = pages, events, list[str]()

    def get(self, path: str) -> Any:
        self.asked.append(path)
        if "/events?fieldSelector=" in path:
            wanted = dict(term.split("=") for term in unquote(path.partition("?fieldSelector=")[2]).split(","))
            kind, name = wanted["involvedObject.kind"], wanted["involvedObject.name"]
            involved = [one for one in self.events if one["involvedObject"]["kind"] == kind]
            return {"items": [one for one in involved if one["involvedObject"]["name"] == name]}
        return self.pages.get(path)


@pytest.fixture
def cluster() -> Cluster:
    meta = {"name": "c", "namespace": "default", "uid": "c-uid"}
    claim = {
        "metadata": meta, "spec": {"warmPoolRef": {"name": "python"}},
        "status": {"conditions": [condition("Ready", "True", "DependenciesReady", "bound")], "sandbox": {"name": "python-1"}},
    }  # fmt: skip
    owner = {"kind": "SandboxClaim", "name": "c", "uid": "c-uid", "controller": True}
    sandbox = {
        "metadata": {"name": "python-1", "uid": "python-1-uid", "ownerReferences": [owner]},
        "status": {"conditions": [condition("Ready", "True", "DependenciesReady")]},
    }
    pool = {
        "metadata": {"name": "python", "deletionTimestamp": "2026-01-02T03:05:00Z"},
        "spec": {"sandboxTemplateRef": {"name": "t"}},
        "status": {"conditions": [condition("Ready", "False", "TooFew")]},
    }
    return Cluster(
        {
            CLAIM: claim,
            f"{SANDBOX}/python-1": sandbox,
            POD: {"metadata": {"name": "python-1", "uid": "python-1-uid"}, "status": {}},
            POOL: pool,
            f"{STORIES}/claim/c": {
                "entries": [
                    entry(
                        "05.001234", "SandboxClaim+again",
                        "take python-1; wrote patch sandboxes/python-1; tried patch sandboxclaims/c: Conflict; "
                        "wrote patch status of sandboxclaims/c",
                    ),
                    entry("04.900000", "SandboxClaim", "", "error: Unavailable: no answer"),
                ]
            },
            f"{STORIES}/sandbox/python-1": {"entries": [entry("05.003000", "Sandbox", "")]},
            f"{STORIES}/kubelet/python-1": {"entries": [entry("01.000000", "Pod", "start python-1")]},
            f"{STORIES}/pool/python": {"entries": [entry("06.000000", "Sandbox", "create 1")]},
        },
        [
            event("SandboxClaim", "c", "SandboxAdopted", "got python-1", count=2),
            {**event("SandboxClaim", "c", "Old", "of an earlier claim"), "involvedObject": {"kind": "SandboxClaim", "name": "c", "uid": "x"}},
            event("Pod", "python-1", "Started", "it runs", lastTimestamp=None, eventTime="2026-01-02T03:04:02.500000Z"),
        ],
    )  # fmt: skip


STORY = """\
claim default/c
  Ready True since 2026-01-02 03:04:05: DependenciesReady, bound
sandbox default/python-1
  Ready True since 2026-01-02 03:04:05: DependenciesReady
pod default/python-1
pool default/python (being deleted)
  Ready False since 2026-01-02 03:04:05: TooFew

2026-01-02 UTC
03:04:00.998  pod python-1           woken by Pod
                                     decided: start python-1
                                     done (1.5 ms)
03:04:02.500  event of pod python-1  Normal Started: it runs
03:04:04.898  claim                  woken by SandboxClaim
                                     error: Unavailable: no answer (1.5 ms)
03:04:04.999  claim                  woken by SandboxClaim, again
                                     decided: take python-1
                                     wrote patch sandboxes/python-1
                                     tried patch sandboxclaims/c: Conflict
                                     wrote patch status of sandboxclaims/c
                                     done (1.5 ms)
03:04:05.001  sandbox python-1       woken by Sandbox
                                     nothing to do (1.5 ms)
03:04:05      event of claim         Normal SandboxAdopted: got python-1 (2 times)
"""


def test_the_story_of_a_claim(cluster: Cluster) -> None:
    found = related_objects(cluster.get, "claim", "default", "c")
    assert text(found, timeline(found), UTC) == STORY


def test_a_message_cannot_forge_lines_or_move_the_cursor(cluster: Cluster) -> None:
    cluster.pages[CLAIM]["status"]["conditions"] = [condition("Ready", "True", "X", "a\nclaim default/d\x1b[2Jb\x9bc")]
    cluster.events.append(event("SandboxClaim", "c", "Y", "e\r\nf"))
    found = related_objects(cluster.get, "claim", "default", "c")
    told = text(found, timeline(found), UTC)
    assert "X, a claim default/d [2Jb c\n" in told
    assert "Normal Y: e  f\n" in told
    assert all(line.isprintable() for line in told.split("\n"))


def test_containers_that_do_not_run_are_told_in_their_kubelets_words(cluster: Cluster) -> None:
    cluster.pages[POD]["status"] = {
        "initContainerStatuses": [
            {"name": "done", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
            {"name": "first", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}},
        ],
        "containerStatuses": [
            {"name": "fine", "state": {"running": {}}, "restartCount": 0},
            {"name": "coming", "state": {"waiting": {"reason": "ContainerCreating"}}},
            {
                "name": "main",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "restartCount": 3,
                "lastState": {"terminated": {"exitCode": 127, "reason": "Error"}},
            },
        ],
    }
    found = related_objects(cluster.get, "claim", "default", "c")
    told = [line for line in text(found, timeline(found), UTC).splitlines() if line.startswith("  container")]
    assert told == [
        "  container first terminated: Error",
        "  container main waiting: CrashLoopBackOff, back-off; restarts: 3; ended before with 127 (Error)",
    ]


def test_times_are_those_of_the_reader(cluster: Cluster) -> None:
    found = related_objects(cluster.get, "claim", "default", "c")
    told = text(found, timeline(found), timezone(timedelta(hours=21), "NOW"))
    assert "Ready True since 2026-01-03 00:04:05" in told
    assert "2026-01-03 NOW\n00:04:00.998  pod" in told


def test_a_program_gets_the_same(cluster: Cluster) -> None:
    found = related_objects(cluster.get, "claim", "default", "c")
    made = document(found, timeline(found))
    assert (made["kind"], made["namespace"], made["name"]) == ("claim", "default", "c")
    assert [(one["kind"], one["name"], one["found"]) for one in made["objects"]] == [
        ("claim", "c", True), ("sandbox", "python-1", True), ("pod", "python-1", True), ("pool", "python", True),
    ]  # fmt: skip
    assert made["story"][3] == {
        "when": "2026-01-02T03:04:04.999734Z",
        "who": "claim",
        "seen": "SandboxClaim+again",
        "decided": ("take python-1",),
        "written": (
            "wrote patch sandboxes/python-1",
            "tried patch sandboxclaims/c: Conflict",
            "wrote patch status of sandboxclaims/c",
        ),
        "outcome": "done",
        "seconds": 0.0015,
    }


def test_a_claim_that_waits_is_told_about_its_pool(cluster: Cluster) -> None:
    cluster.pages[CLAIM]["status"] = {"conditions": [condition("Ready", "False", "WaitingForSandbox")]}
    found = related_objects(cluster.get, "claim", "default", "c")
    assert [one.word for one in found] == ["claim", "pool"]
    assert "decided: create 1" in text(found, timeline(found), UTC)


def test_a_cold_sandbox_is_found_by_its_owner(cluster: Cluster) -> None:
    cluster.pages[CLAIM]["status"] = {}
    cluster.pages[f"{SANDBOX}/c"] = {"metadata": {"name": "c", "ownerReferences": [{"uid": "c-uid"}]}}
    assert [one.name for one in related_objects(cluster.get, "claim", "default", "c") if one.word == "sandbox"] == ["c"]
    cluster.pages[f"{SANDBOX}/c"]["metadata"]["ownerReferences"] = [{"uid": "other"}]
    assert not [one for one in related_objects(cluster.get, "claim", "default", "c") if one.word == "sandbox"]


def test_a_claim_that_is_gone_is_still_told(cluster: Cluster) -> None:
    del cluster.pages[CLAIM]
    found = related_objects(cluster.get, "claim", "default", "c")
    told = text(found, timeline(found), UTC)
    assert told.startswith("claim default/c: it does not exist now\n\n2026-01-02 UTC\n03:04:04.898  claim")
    assert "Normal Old: of an earlier claim" in told, "without a uid every Event of that name is shown"


def test_other_kinds_lead_to_what_they_depend_on(cluster: Cluster) -> None:
    def words(word: str, name: str) -> list[str]:
        return [str(one) for one in related_objects(cluster.get, word, "default", name)]

    assert words("sandbox", "python-1") == ["sandbox default/python-1", "pod default/python-1", "claim default/c"]
    assert words("pool", "python") == ["pool default/python", "template default/t"]
    assert words("template", "t") == ["template default/t"]


def test_names_cannot_leave_their_place_in_a_path(cluster: Cluster) -> None:
    related_objects(cluster.get, "claim", "../kube-system", "a?b#c")
    assert all("%2Fkube-system" in path and "?b" not in path for path in cluster.asked)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("claim", "claim"), ("claims", "claim"), ("SandboxClaim", "claim"), ("sandboxclaims", "claim"), ("swp", "pool"),
        ("sandboxclaims.extensions.agents.x-k8s.io", "claim"), ("pool", "pool"), ("sandboxes", "sandbox"),
        ("sandbox", "sandbox"), ("templates", "template"), ("sandboxtemplate", "template"), ("pod", None), ("", None),
    ],
)  # fmt: skip
def test_kinds_as_people_write_them(kind: str, word: str | None) -> None:
    assert word_of(kind) == word


@pytest.mark.parametrize("what", ["c", "claim/", "/c", "pod/x", "claim/a/b", ""])
def test_what_names_no_object_is_refused(what: str) -> None:
    with pytest.raises(Exit, match="KIND/NAME with one of the kinds claim, sandbox, pool, template") as caught:
        asked(what)
    assert caught.value.code == USAGE


def test_when_nothing_is_remembered_it_says_what_to_do(cluster: Cluster) -> None:
    found = related_objects(cluster.get, "template", "default", "t")
    about: dict[str, Any] = {
        "pid": 1,
        "api": "",
        "kubeconfig": "",
        "data_dir": "",
        "version": "",
        "started": "2026-01-02T03:04:05Z",
    }
    said = nothing_remembered(found, Running(**about, backend="hollow"))
    assert "there is no history of template default/t" in said
    assert "since the cluster started at 2026-01-02 03:04:05 UTC" in said
    assert "without `--backend none`" in nothing_remembered(found, Running(**about, backend="none"))
