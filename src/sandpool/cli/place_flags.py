"""Flags about where a local cluster listens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from sandpool.cli.exits import USAGE, Exit

DEFAULT_PORT = 7443
DEFAULT_ROUTER_PORT = 7480


@Parameter(name="*")
@dataclass(frozen=True)
class PlaceFlags:
    port: Annotated[int, Parameter(env_var="SANDPOOL_PORT", help="Where the API listens. 0 takes a free port.")] = (
        DEFAULT_PORT
    )
    host: Annotated[
        str, Parameter(help="The address it listens on. Anything but loopback makes it reachable for others.")
    ] = "127.0.0.1"
    router_port: Annotated[
        int | None,
        Parameter(
            env_var="SANDPOOL_ROUTER_PORT",
            show_default=False,
            help=f"Where the router listens, on 127.0.0.1. Default: {DEFAULT_ROUTER_PORT}, and a free port with --port 0.",
        ),
    ] = None

    @property
    def way_in(self) -> int:
        """The router's port."""
        if self.router_port is not None:
            return self.router_port
        return DEFAULT_ROUTER_PORT if self.port else 0

    def check(self) -> None:
        """Exit for a mistake."""
        for flag, number in (("--port", self.port), ("--router-port", self.way_in)):
            if not 0 <= number <= 65535:
                raise Exit(USAGE, f"{flag} {number} is not a port; choose one from 1 to 65535, or 0 for a free one")
        if not self.host:
            raise Exit(USAGE, "--host is empty; name an address, such as 127.0.0.1, or 0.0.0.0 for all of them")

    def arguments(self) -> list[str]:
        """The same again, for another run of the command."""
        return [f"--port={self.port}", f"--host={self.host}", f"--router-port={self.way_in}"]
