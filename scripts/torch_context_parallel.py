#!/usr/bin/env python3
"""Benchmarks PyTorch's context_parallel, attention of one problem on several GPUs, as flashbench
benchmarks its own providers for several GPUs: the same cases, inputs, rounds, checks and result
files.

    scripts/torch_context_parallel.py --config configs/split_h200.json --device cuda:0,1,2,3 [...]

Runs `flashbench sweep --program scripts/torch_context_parallel.py` with the arguments given; its
--help lists them. Cases need the axis `gpus`, and --device the GPUs. Results go to
results/NAME/torch_context_parallel/ unless --out says otherwise; `flashbench report` takes them
beside others. `flashbench run` and `verify` take --program as well.

Needs PyTorch 2.11 with NCCL in the python3 of the PATH. $FLASHBENCH is the binary, else the one
that was built here, else the one on the PATH. Providers: torch:context_parallel_KERNEL_ROTATION,
with KERNEL flash or cudnn, and ROTATION allgather or alltoall: how K and V of the other GPUs arrive.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))


def main():
    if sys.argv[1:] == ["serve"]:  # by flashbench
        from torch_program.group_server import serve
        serve()
    elif sys.argv[1:] == ["peer"]:  # by the process that serves
        from torch_program.group_server import serve_as_peer
        serve_as_peer()
    else:
        from own_sweep import own_sweep
        own_sweep(__doc__)


if __name__ == "__main__":
    main()
