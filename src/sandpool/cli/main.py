"""The `sandpool` command. A command's module is imported only when it runs, so that `sandpool --help` answers at once.

Data goes to stdout, messages to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 timed out, 75 out of memory (of `up`),
130 interrupted; `run`, `exec` and `shell` exit like the command, or with 125 if sandpool itself failed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import cyclopts
from cyclopts import App

from sandpool.base.errors import SandpoolError
from sandpool.cli.commands import COMMANDS, OTHER
from sandpool.cli.exits import FAILED, INTERRUPTED, USAGE, Exit
from sandpool.version import __version__

EARLY = frozenset({"-n", "--namespace", "--kubeconfig", "--context", "--data-dir"})
NAMES = frozenset(one.name for one in COMMANDS)


def build(arguments: Sequence[str] = ()) -> App:
    """The overview has one line per command; the help of a command is its docstring."""
    app = App(
        name="sandpool",
        help="Warm, isolated sandboxes for AI agents.",
        version=__version__,
        version_flags=["--version"],
    )
    overview = not arguments or arguments[0] not in NAMES
    for at, one in enumerate(COMMANDS):
        summary = one.help if overview else None
        app.command(f"sandpool.cli.{one.path}", name=one.name, group=one.group, sort_key=at, help=summary)
    for flag in ("--help", "--version"):
        app[flag].group = OTHER
    return app


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code. Errors of the user never show a traceback."""
    try:
        arguments = hoisted(arguments)
        ended = build(arguments)(arguments, exit_on_error=False, print_error=True, result_action="return_value")
        sys.stdout.flush()
    except cyclopts.CycloptsError as error:
        return _said(_help(arguments, error.command_chain or ()), USAGE)  # cyclopts has printed the error
    except Exit as end:
        return _said(end.message, end.code)
    except SandpoolError as error:
        from sandpool.cli.error_messages import code_of, describe_error

        return _said(describe_error(error), code_of(error))
    except BrokenPipeError:  # the reader of our output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter would complain at its end
        return 128 + signal.SIGPIPE
    except OSError as error:  # a file or directory that cannot be used: the message must name it
        named = f"{error.filename}: " if error.filename else ""
        return _said(f"{named}{error.strerror or error}", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    return ended if isinstance(ended, int) else 0


def _help(arguments: Sequence[str], chain: Sequence[str]) -> str:
    """`chain` is the command as far as it was understood, such as `pool create`."""
    command = " ".join(chain)
    if command in ("run", "exec") and "--" not in arguments:
        return f"write the command after --, as in `sandpool {command} NAME -- ls -l`; `sandpool {command} --help` shows more"
    return f"`sandpool {command} --help` shows how it is used".replace("  ", " ")


def hoisted(arguments: list[str]) -> list[str]:
    """`sandpool -n red get pools`, as kubectl takes it: flags before the command go to its own, before any `--`."""
    at = 0
    while at < len(arguments) and arguments[at].partition("=")[0] in EARLY:
        at += 1 if "=" in arguments[at] else 2
    rest = arguments[at:]
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *arguments[:at], *rest[end:]]


def _said(message: str, code: int) -> int:
    """May contain text of servers and sandboxes: removes control characters."""
    if message:
        shown = "".join(letter if letter.isprintable() or letter in "\n\t" else " " for letter in message)
        print(f"sandpool: {shown}", file=sys.stderr)
    return code


def main() -> NoReturn:
    sys.exit(run(sys.argv[1:]))
