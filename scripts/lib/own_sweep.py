"""Runs the `flashbench sweep` of a script that is a program for `--program`."""

import os
import shutil
import sys
from pathlib import Path

BUILT = Path(__file__).resolve().parents[2] / "build/cpu/bin/flashbench"


def own_sweep(description):
    """With the script's arguments; does not return. Without arguments, or for --help, prints the
    description."""
    script, *arguments = sys.argv
    if arguments in ([], ["-h"], ["--help"]):
        print(description)
        sys.exit(0 if arguments else 2)
    binary = find_flashbench(Path(script).name)
    os.execv(binary, [binary, "sweep", "--program", script, *arguments])


def find_flashbench(script):
    candidates = [os.environ.get("FLASHBENCH"), BUILT if BUILT.exists() else None,
                  shutil.which("flashbench")]
    found = next((str(path) for path in candidates if path), None)
    if found is None:
        sys.exit(f"{script}: no flashbench: expected one in $FLASHBENCH, {BUILT} or the PATH")
    return found
