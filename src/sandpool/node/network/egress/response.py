"""The head of an origin's answer. Pure. It is passed on without what is meant for one hop, and says that the connection ends.

How long the body is need not be understood: it ends with the connection.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandpool.node.network.egress.head import Headers, end_to_end, joined, split
from sandpool.node.network.egress.refusal import malformed

_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: [\t\x20-\x7e\x80-\xff]{0,1024})?")


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    first: bytes
    headers: Headers

    @property
    def interim(self) -> bool:
        """Another answer follows. A change of protocol is not asked for, so it is none of ours."""
        return 100 <= self.status < 200

    def onward(self) -> bytes:
        headers = end_to_end(self.headers)
        return joined(self.first, headers if self.interim else (*headers, ("connection", b"close")))


def parse(head: bytes) -> Response:
    first, headers = split(head)
    found = _LINE.fullmatch(first)
    if found is None:
        raise malformed("the first line of the answer is not `HTTP/1.1 STATUS text`")
    status = int(found[1])
    if status == 101:
        raise malformed("the answer changes the protocol without being asked to")
    return Response(status, first, headers)
