"""Runs commands of attnfuzz, each in a process of its own, which is killed with SIGKILL at instants
that a seed draws before it is let run to its end. What is written is one JSON line: how many of the
killed ones were killed before their end.

`python -m tests.support.killed_commands SEED KILLS < COMMANDS.json`
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from random import Random

import attnfuzz.fuzz.adopt
import attnfuzz.fuzz.report.pages  # what commands import is there before they are forked  # noqa: F401
from attnfuzz.corpus.decisions import deciding, splitting, undoing  # noqa: F401
from attnfuzz.fuzz.cli.app import main


def begun(command: list[str]) -> int:
    """The process that runs it."""
    child = os.fork()
    if child == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os._exit(main(command))
    return child


def whole(command: list[str]) -> float:
    """Runs it to its end; seconds that it took."""
    since = time.monotonic()
    _, status = os.waitpid(begun(command), 0)
    assert os.waitstatus_to_exitcode(status) == 0, command
    return time.monotonic() - since


def killed(command: list[str], delay: float) -> bool:
    """Begins it and kills it after `delay` seconds; whether it had not ended by then."""
    child = begun(command)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def play(seed: int, kills: int, commands: list[list[list[str]]]) -> int:
    """For each command, first on a corpus that is left in peace, then the same on another."""
    random, hit = Random(seed), 0
    for undisturbed, disturbed in commands:
        takes = whole(undisturbed)
        hit += sum(killed(disturbed, random.uniform(0, takes)) for _ in range(kills))
        whole(disturbed)
    return hit


if __name__ == "__main__":
    seed, kills = map(int, sys.argv[1:])
    print(json.dumps({"killed": play(seed, kills, json.load(sys.stdin))}))
