"""How the fuzzer treats this API: watches end by themselves, and nothing destroys what the next call needs."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.hook
def map_query(context: Any, query: Any) -> Any:
    """A watch that nobody ends would be the fuzzer's hang, not the server's."""
    if query and "watch" in query:
        query["timeoutSeconds"] = 1
    return query
