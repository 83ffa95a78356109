"""The `sandpool` command. Each subcommand is imported when it runs, so that `sandpool --help` answers at once.

stdout is data, stderr is talk. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not there, 4 timed out.
"""

from __future__ import annotations

import sys
from typing import NoReturn

import cyclopts
from cyclopts import App

from sandpool.cli.exits import FAILED, USAGE, Exit
from sandpool.kube.errors import SandpoolError
from sandpool.version import __version__

app = App(
    name="sandpool",
    help="Isolated computers for AI agents, ready before they are asked for.",
    version=__version__,
    version_flags=["--version"],
)
app.command("sandpool.cli.up:up")
app.command("sandpool.cli.down:down")
app.command("sandpool.cli.status:status")
app.command("sandpool.cli.token:token")
app.command("sandpool.cli.backup:backup")
app.command("sandpool.cli.backup:restore")
app.command("sandpool.cli.crds:crds")


def run(arguments: list[str]) -> int:
    """Runs one command line and answers its exit code; what a user did wrong never shows a traceback."""
    try:
        app(arguments, exit_on_error=False, print_error=True, result_action="return_value")
    except cyclopts.CycloptsError:
        return USAGE  # cyclopts has said what is wrong
    except Exit as end:
        if end.message:
            print(f"sandpool: {end.message}", file=sys.stderr)
        return end.code
    except SandpoolError as error:
        print(f"sandpool: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130
    return 0


def main() -> NoReturn:
    sys.exit(run(sys.argv[1:]))
