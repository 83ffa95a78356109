"""Serves a web app from a sandbox and visits it from outside.

    sandpool up --detach
    python examples/05-web-app/serve.py           # starts it, visits it, stops it
    python examples/05-web-app/serve.py --stay    # keeps it up until Ctrl-C; open the address in a browser

A sandbox cannot listen on this machine. `box.url(port)` is an address of the router with a signed token for exactly this port of this
sandbox, so it works in a browser, and nobody can guess the address of another one.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import urllib.error
import urllib.request

from sandpool import Process, Sandbox

APP = """
import http.server, json, os

class Page(http.server.BaseHTTPRequestHandler):
    visits = 0
    def do_GET(self):
        Page.visits += 1
        body = json.dumps({"hello": "from a sandbox", "path": self.path, "visits": Page.visits, "host": os.uname().nodename})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Page).serve_forever()
"""


DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the router is on this machine


def visit(address: str) -> dict[str, object]:
    with DIRECTLY.open(address, timeout=10) as answer:
        page: dict[str, object] = json.load(answer)
    return page


def first_visit(address: str, app: Process) -> dict[str, object]:
    """Retries until the app listens; before that, the router answers 502."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return visit(address)
        except urllib.error.HTTPError as error:
            if error.code != 502 or app.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def main() -> None:
    with Sandbox.claim("python", ttl=3600) as box:
        box.files.write("app.py", APP)
        app = box.start(["python3", "app.py"])
        address = box.url(8000)
        print(first_visit(address, app))
        print(visit(address + "again"))
        if "--stay" in sys.argv:
            print(f"open {address} (it is good for an hour); Ctrl-C ends it")
            with contextlib.suppress(KeyboardInterrupt):
                app.wait()


if __name__ == "__main__":
    main()
