"""Every REST case, put to our server and compared with what a real kube-apiserver was recorded to answer.

With `-m kube` the real server is asked too, and must still answer what was recorded.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from conformance.rest.answers import differences, expected_of_kubernetes, expected_of_us, unlike
from conformance.rest.catalogue import CASES
from conformance.rest.exchange import Answer, ask_all
from support.api.implementations import local_objects, served
from support.kube.fixture import real_kubeconfig
from support.kube.target import target_of

Asked = dict[str, Answer | Exception]


@pytest.fixture(scope="session")
def ours(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """All selected cases are asked at once, of one server that is gone before the first comparison."""

    async def ask(folder: Path) -> Asked:
        async with local_objects(folder, durable=False) as objects, served(objects, folder) as kubeconfig:
            return await ask_all(target_of(kubeconfig), selected(request, "test_ours"), at_once=8)

    return asyncio.run(ask(tmp_path_factory.mktemp("rest")))


@pytest.fixture(scope="session")
def real(request: pytest.FixtureRequest) -> Asked:
    return asyncio.run(ask_all(target_of(real_kubeconfig()), selected(request, "test_real"), at_once=8))


def selected(request: pytest.FixtureRequest, test: str) -> list[str]:
    """The cases for which that test will run."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.originalname == test]
    return [str(item.callspec.params["name"]) for item in items]


def check(expected: Answer, got: Answer | Exception) -> None:
    if isinstance(got, Exception):
        raise got
    found = unlike(expected, got)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


@pytest.mark.parametrize("name", CASES)
def test_ours(name: str, ours: Asked) -> None:
    check(expected_of_us(name), ours[name])


@pytest.mark.kube
@pytest.mark.parametrize("name", CASES)
def test_real(name: str, real: Asked) -> None:
    check(expected_of_kubernetes(name), real[name])


def test_differences_are_explained_and_real(ours: Asked) -> None:
    """A difference says why, and is one: where we answer like Kubernetes again, it must be taken off the list."""
    for name, difference in differences().items():
        assert difference.reason, name
        if name in ours:
            got = ours[name]
            assert isinstance(got, Exception) or unlike(expected_of_kubernetes(name), got), (
                f"{name}: no difference left"
            )
