#!/usr/bin/env python3
"""Draws the cases of configs/random_shapes.json: attention as models have it, at shapes that nobody
chose, so that a kernel tuned to a grid shows how it does beside it.

    scripts/random_shapes.py           write the config
    scripts/random_shapes.py --check   write nothing, and fail if the config would change
"""

import argparse
import json
import math
import random
import sys
from pathlib import Path

CONFIG = Path(__file__).resolve().parent.parent / "configs/random_shapes.json"
SEED = 1
CASES = 120

# Query heads and K/V heads of published models, and how often each head_dim is drawn.
HEADS = [
    (6, 6), (8, 1), (8, 4), (10, 10), (12, 12), (14, 2), (16, 8), (16, 16), (20, 20), (24, 8),
    (24, 24), (25, 25), (28, 4), (32, 8), (32, 32), (40, 8), (40, 40), (48, 8), (64, 8), (71, 1),
    (96, 8),
]  # fmt: skip
HEAD_DIMS = {64: 30, 72: 3, 80: 5, 96: 8, 112: 3, 128: 40, 160: 3, 192: 4, 256: 10}
LENGTHS = (96, 20000)
# Of the products of a case: enough to compare times, and few enough to run 120 cases.
FLOP = (3e9, 1e12)
MOST_BYTES = 400e6  # of Q in 16 bits, or of K with as many heads

HEADER = {
    "$schema": "sweep.schema.json",
    "schema_version": 1,
    "name": "random_shapes",
    "description": "Shapes drawn at random by scripts/random_shapes.py: head counts and head_dims of published models, any batch and length, both passes.",
    "device": "cuda",
    "providers": ["tiled", "cudnn"],
    "measure": {
        "cache": "warm",
        "warmup_runs": 3,
        "warmup_seconds": 0.02,
        "min_samples": 10,
        "max_samples": 60,
        "target_ci_width": 0.02,
        "max_seconds": 0.15,
        "energy_seconds": 0,
        "counters": "off",
    },
}


def log_uniform(draw, low, high):
    return round(math.exp(draw.uniform(math.log(low), math.log(high))))


def draw_length(draw):
    """Half of the lengths are multiples of 128, as batches that are padded have them."""
    length = log_uniform(draw, *LENGTHS)
    return max(128, length // 128 * 128) if draw.random() < 0.5 else length


def draw_case(draw):
    q_heads, kv_heads = draw.choice(HEADS)
    q_len = draw_length(draw)
    longer = draw.random() < 0.15
    return {
        "pass": draw.choice(["forward", "backward"]),
        "dtype": draw.choices(["bf16", "fp16"], [4, 1])[0],
        "mask": draw.choices(["causal_bottom_right", "none"], [3, 2])[0],
        "batch": log_uniform(draw, 1, 32),
        "q_heads": q_heads,
        "kv_heads": kv_heads,
        "q_len": q_len,
        "kv_len": max(q_len, draw_length(draw)) if longer else q_len,
        "head_dim": draw.choices(list(HEAD_DIMS), list(HEAD_DIMS.values()))[0],
    }


def has_usual_size(case):
    columns = case["batch"] * case["q_heads"] * case["head_dim"]  # of all heads
    pairs = case["q_len"] * case["kv_len"]
    if case["mask"] != "none":
        pairs -= case["q_len"] ** 2 / 2
    flop = columns * pairs * (4 if case["pass"] == "forward" else 10)
    return FLOP[0] < flop < FLOP[1] and 2 * columns * case["kv_len"] < MOST_BYTES


def config():
    draw = random.Random(SEED)
    cases = []
    while len(cases) < CASES:
        case = draw_case(draw)
        if has_usual_size(case):
            cases.append(case)
    lines = ",\n".join("    " + json.dumps(case) for case in cases)
    header = json.dumps(HEADER, indent=2).removesuffix("\n}")
    return f'{header},\n  "cases": [\n{lines}\n  ]\n}}\n'


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        CONFIG.write_text(config())
    elif CONFIG.read_text() != config():
        sys.exit(f"{CONFIG} is not what scripts/random_shapes.py writes")


if __name__ == "__main__":
    main()
