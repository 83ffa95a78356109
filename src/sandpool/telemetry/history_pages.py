"""GET /stories?namespace=N&controller=C&name=X: what a controller of this process remembers of one object.

Stories tell of every namespace, and these pages ask nobody who he is: they are for loopback, where only who may open a way into
the pod (`kubectl port-forward`) arrives. A replica that does not lead has nothing to tell.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sandpool.model.metadata import Key
from sandpool.telemetry.pages import Handler, Page
from sandpool.telemetry.reconcile_history import Story

PATH = "/stories"
ASKED = ("namespace", "controller", "name")
CONTROLLERS = ("claim", "sandbox", "pool", "template")


def story_pages(story: Story) -> dict[str, Handler]:
    async def told(query: Mapping[str, str]) -> Page:
        asked = {name: query.get(name, "") for name in ASKED}
        if not all(asked.values()) or asked["controller"] not in CONTROLLERS:
            words = (
                f"write {PATH}?namespace=N&controller=C&name=X with one of the controllers {', '.join(CONTROLLERS)}\n"
            )
            return Page(words.encode(), 400)
        entries = story.of((asked["controller"], Key(asked["namespace"], asked["name"])))
        body = msgspec.json.encode({**asked, "entries": [entry.shown() for entry in entries]})
        return Page(body, content_type="application/json")

    return {PATH: told}
