"""An agent that solves a task by writing code, running it in a sandbox and reading the output.

    sandpool up --detach
    python examples/03-agent-loop/agent.py

This is the loop of every agent that runs code: ask the model, run what it wrote, show it the output, until it has an answer. The
model's code never runs on this machine, only in a sandbox from the warm pool, which is deleted at the end. The model in this example is a
script of three answers, the first of them wrong, so that you need no API key. Implement `Model` to use your own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from sandpool import Sandbox

TASK = "In orders.csv, which customer spent the most, and how much?"
ORDERS = "customer,amount\nada,20.50\ngrace,31.00\nada,42.25\nlinus,n/a\ngrace,18.75\n"
MOST_TURNS = 6


@dataclass(frozen=True)
class Turn:
    """What the model wants: run this code, or give this answer and stop."""

    code: str = ""
    answer: str = ""


class Model(Protocol):
    def next(self, task: str, seen: list[str]) -> Turn:
        """`seen` is the output of each step so far."""
        ...


@dataclass
class Scripted:
    """A scripted replacement for a language model: its first try fails on a bad row, its second does not."""

    turns: Iterator[Turn] = field(
        default_factory=lambda: iter(
            (
                Turn(
                    code="import csv, collections\n"
                    "spent = collections.Counter()\n"
                    "for row in csv.DictReader(open('orders.csv')):\n"
                    "    spent[row['customer']] += float(row['amount'])\n"
                    "print(spent.most_common(1))\n"
                ),
                Turn(
                    code="import csv, collections\n"
                    "spent = collections.Counter()\n"
                    "for row in csv.DictReader(open('orders.csv')):\n"
                    "    try:\n"
                    "        spent[row['customer']] += float(row['amount'])\n"
                    "    except ValueError:\n"
                    "        print('skipped', row)\n"
                    "print(spent.most_common(1))\n"
                ),
                Turn(answer="ada spent the most: 62.75"),
            )
        )
    )

    def next(self, task: str, seen: list[str]) -> Turn:
        return next(self.turns)


def solve(box: Sandbox, model: Model, task: str) -> str:
    seen: list[str] = []
    for _ in range(MOST_TURNS):
        turn = model.next(task, seen)
        if turn.answer:
            return turn.answer
        box.files.write("step.py", turn.code)
        result = box.run(["python3", "step.py"], timeout=30)
        seen.append(result.stdout + result.stderr)
        print(f"--- exit code {result.exit_code}\n{seen[-1].rstrip()}")
    raise SystemExit(f"no answer after {MOST_TURNS} turns")


def main() -> None:
    with Sandbox.claim("python", ttl=600) as box:
        box.files.write("orders.csv", ORDERS)
        print(f"=== {solve(box, Scripted(), TASK)}")


if __name__ == "__main__":
    main()
