#!/usr/bin/env python3
"""Benchmarks PyTorch's scaled_dot_product_attention, backend by backend, as flashbench benchmarks
its own kernels: the same cases, inputs, rounds, checks and result files.

    scripts/torch_sdpa.py --config configs/h200.json [--providers torch:flash,torch:cudnn] [...]

Runs `flashbench sweep --program scripts/torch_sdpa.py` with the arguments given; its --help lists
them. Results go to results/NAME/torch_sdpa/ unless --out says otherwise; `flashbench report` takes
them beside others. `flashbench run` and `verify` take --program as well.

Needs PyTorch 2.5 or later in the python3 of the PATH. $FLASHBENCH is the binary, else the one that
was built here, else the one on the PATH. Providers: torch:flash, torch:efficient, torch:cudnn,
torch:math; where they are named, torch:flex; with their packages, fa2, fa3 and fa4
(FlashAttention).
"""

import os
import shutil
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve()


def main():
    if sys.argv[1:] == ["serve"]:  # by flashbench
        sys.path.insert(0, str(SCRIPT.parent / "lib"))
        from torch_program.serve import serve
        serve()
        return
    if len(sys.argv) == 1 or sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__)
        sys.exit(0 if len(sys.argv) > 1 else 2)
    binary = find_flashbench()
    os.execv(binary, [binary, "sweep", "--program", sys.argv[0], *sys.argv[1:]])


def find_flashbench():
    built = SCRIPT.parents[1] / "build/cpu/bin/flashbench"
    candidates = [os.environ.get("FLASHBENCH"), built if built.exists() else None,
                  shutil.which("flashbench")]
    found = next((str(path) for path in candidates if path), None)
    if found is None:
        sys.exit(f"torch_sdpa.py: no flashbench: expected one in $FLASHBENCH, {built} or the PATH")
    return found


if __name__ == "__main__":
    main()
