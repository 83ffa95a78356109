"""The `sandpool` command. Subcommands import what is heavy only when they run, so that `sandpool --help` answers at once.

stdout is data, stderr is talk. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not there, 4 timed out.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

import cyclopts
from cyclopts import App

from sandpool.cli.backup import backup, restore
from sandpool.cli.controller import controller
from sandpool.cli.crds import crds
from sandpool.cli.down import down
from sandpool.cli.exits import FAILED, USAGE, Exit
from sandpool.cli.image import image
from sandpool.cli.install import install
from sandpool.cli.simulate import simulate
from sandpool.cli.status import status
from sandpool.cli.token import token
from sandpool.cli.up import up
from sandpool.cli.why import why
from sandpool.kube.errors import SandpoolError
from sandpool.version import __version__

app = App(
    name="sandpool",
    help="Isolated computers for AI agents, ready before they are asked for.",
    version=__version__,
    version_flags=["--version"],
)
for command in (up, status, down, token, backup, restore, crds, controller, install, why, simulate):
    app.command(command)
app.command(image)


def run(arguments: list[str]) -> int:
    """Runs one command line and answers its exit code; what a user did wrong never shows a traceback."""
    try:
        app(arguments, exit_on_error=False, print_error=True, result_action="return_value")
        sys.stdout.flush()
    except cyclopts.CycloptsError:
        return USAGE  # cyclopts has said what is wrong
    except Exit as end:
        if end.message:
            print(f"sandpool: {end.message}", file=sys.stderr)
        return end.code
    except SandpoolError as error:
        print(f"sandpool: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:  # who read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter would complain at its end
        return 128 + signal.SIGPIPE
    except OSError as error:  # a file or a folder that may not be used: the message must name it
        named = f"{error.filename}: " if error.filename else ""
        print(f"sandpool: {named}{error.strerror or error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130
    return 0


def main() -> NoReturn:
    sys.exit(run(sys.argv[1:]))
