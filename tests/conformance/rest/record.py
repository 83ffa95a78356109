"""Asks a real kube-apiserver every case and writes down what it said: `PYTHONPATH=tests python -m conformance.rest.record`.

Uses the cluster of SANDPOOL_KUBECONFIG if that is set, else starts a server. Names given as arguments are only shown.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import aiohttp
import yaml

from conformance.rest.answers import ANSWERS
from conformance.rest.catalogue import CASES
from conformance.rest.exchange import Target, ask_all
from support.kube.target import real_target


async def version(target: Target) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"{target.url}/version", ssl=target.tls) as answer:
        said: dict[str, Any] = await answer.json()
        return str(said["gitVersion"])


def main() -> None:
    wanted = sys.argv[1:]
    names = [name for name in CASES if not wanted or any(word in name for word in wanted)]
    with real_target() as target:
        answers = asyncio.run(ask_all(target, names, at_once=4))
        for name, trouble in answers.items():
            if isinstance(trouble, Exception):
                raise SystemExit(f"{name}: {trouble}")
        document = {"kubernetes": asyncio.run(version(target)), "answers": answers}
    text = yaml.safe_dump(document, sort_keys=False, width=140, allow_unicode=True)
    if wanted:
        print(text)
    else:
        ANSWERS.write_text("# Recorded by record.py from a real kube-apiserver; never edited by hand.\n" + text)


if __name__ == "__main__":
    main()
