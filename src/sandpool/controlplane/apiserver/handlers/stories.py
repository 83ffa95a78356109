"""GET /sandpool/stories/NAMESPACE/CONTROLLER/NAME: what a controller of this process remembers of one object.

Remembered is not stored: a story outlives its object and ends with the process. Who may read a namespace may read its stories;
`authorise.py` and this handler read the path with the same function, so that they cannot disagree about the namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from sandpool.controlplane.apiserver.answer import Reply, encoded, page_not_found
from sandpool.controlplane.apiserver.call import Call
from sandpool.controlplane.apiserver.handlers.runtime import NotServed
from sandpool.controlplane.apiserver.request import story_of
from sandpool.model.metadata import Key
from sandpool.telemetry.reconcile_history import Entry

Stories = Callable[[Hashable], tuple[Entry, ...]]
"""What is remembered of (controller, key), oldest first: `Story.of`."""

CONTROLLERS = ("claim", "sandbox", "pool", "template", "kubelet")


class StoryPages:
    def __init__(self, stories: Stories | None) -> None:
        self._stories = stories

    def page(self, call: Call) -> Reply:
        asked = story_of(call.info.path)
        if asked is None or asked.controller not in CONTROLLERS:
            return page_not_found()
        if self._stories is None:
            raise NotServed("this server runs no controllers, so nothing is remembered of any object")
        entries = self._stories((asked.controller, Key(asked.namespace, asked.name)))
        return encoded({**asked._asdict(), "entries": [entry.shown() for entry in entries]})
