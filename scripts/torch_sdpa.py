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

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))


def main():
    if sys.argv[1:] == ["serve"]:  # by flashbench
        from torch_program.serve import serve
        serve()
    else:
        from own_sweep import own_sweep
        own_sweep(__doc__)


if __name__ == "__main__":
    main()
