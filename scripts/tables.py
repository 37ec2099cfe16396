#!/usr/bin/python3
"""Tables for the documents, in Markdown, from result CSVs.

  scripts/tables.py speed results/h200/h200.csv      speed-up and TFLOP/s over length
  scripts/tables.py memory results/h200/h200.csv     peak memory over length, and the share saved
  scripts/tables.py ladder results/h200/ladder.csv   what each provider reaches
  scripts/tables.py crossover results/h200/short.csv the length from which tiled is faster than naive
  scripts/tables.py traffic results/h200/h200.csv    measured over compulsory bytes of memory / bytes
                                                     through the L2 over those that the loops request
  scripts/tables.py operations results/h200/h200.csv counted tensor-core operations over claimed FLOPs
"""
import argparse
import sys

import pandas as pd


def read(path):
    frame = pd.read_csv(path)
    return frame[(frame.status == "ok") & (frame.q_len == frame.kv_len)
                 & (frame.q_heads == frame.kv_heads)]


def grid(frame, dtype):
    """The FlashAttention grid: hidden size 2048, 16,384 tokens."""
    return frame[(frame.dtype == dtype) & (frame.q_heads * frame.head_dim == 2048)
                 & (frame.batch * frame.q_len == 16384)]


def mask(name):
    return "full" if name == "none" else "causal"


def length(tokens):
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)


def print_table(header, rows):
    print("| " + " | ".join(header) + " |")
    print("|" + "|".join(["---"] + ["---:"] * (len(header) - 1)) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def over_length(frame, keys, label, cell):
    """A row for each group of `keys`, a column for each length."""
    lengths = sorted(frame.q_len.unique())
    rows = []
    for key, group in frame.groupby(keys, sort=False):
        by_length = {n: cell(part) for n, part in group.groupby("q_len")}
        rows.append([label(key)] + [by_length.get(n, "") for n in lengths])
    print_table([""] + [length(n) for n in lengths], rows)


def speed(frame, dtype):
    frame = grid(frame, dtype)

    def cell(part):
        tiled = part[part.provider == "tiled"]
        if tiled.empty:
            return ""
        row = tiled.iloc[0]
        return f"{row.tflops_convention:.0f} ({row.speedup_vs_naive:.2f}x)"

    over_length(frame, ["pass", "head_dim", "mask"],
                lambda key: f"{key[0]} d{key[1]} {mask(key[2])}", cell)


def memory(frame, dtype):
    frame = grid(frame, dtype)
    frame = frame[frame["mask"] == "none"]

    def cell(part):
        peak = part.set_index("provider").peak_bytes / 2**20
        if not {"naive", "tiled"} <= set(peak.index):
            return ""
        return f"{peak['naive']:.0f} / {peak['tiled']:.0f} ({100 * (1 - peak['tiled'] / peak['naive']):.0f}%)"

    over_length(frame, ["pass", "head_dim"], lambda key: f"{key[0]} d{key[1]}", cell)


def ladder(frame, dtype):
    frame = grid(frame, dtype)
    over_length(frame, ["head_dim", "mask", "provider"],
                lambda key: f"d{key[0]} {mask(key[1])} {key[2]}",
                lambda part: f"{part.iloc[0].tflops_convention:.0f}")


def crossover(frame, dtype):
    frame = frame[(frame.dtype == dtype) & (frame.provider == "tiled")]
    over_length(frame, ["pass", "head_dim", "mask"],
                lambda key: f"{key[0]} d{key[1]} {mask(key[2])}",
                lambda part: f"{part.iloc[0].speedup_vs_naive:.2f}x")


def counted(frame, column):
    """The rows of the grid with this column of the hardware counters' figures."""
    if column not in frame.columns or frame[column].isna().all():
        raise ValueError(f"no row has {column}: the sweep read no hardware counters")
    return frame[frame[column].notna()]


def traffic(frame, dtype):
    frame = counted(grid(frame, dtype), "l2_bytes")

    def cell(part):
        row = part.iloc[0]
        return f"{row.bytes_measured / row.bytes_compulsory:.2f} / {row.l2_bytes / row.bytes_requested:.2f}"

    over_length(frame, ["pass", "head_dim", "mask", "provider"],
                lambda key: f"{key[0]} d{key[1]} {mask(key[2])} {key[3]}", cell)


def operations(frame, dtype):
    frame = counted(grid(frame, dtype), "tensor_ops_per_flop")
    over_length(frame, ["pass", "head_dim", "mask", "provider"],
                lambda key: f"{key[0]} d{key[1]} {mask(key[2])} {key[3]}",
                lambda part: f"{part.iloc[0].tensor_ops_per_flop:.3f}")


TABLES = {"speed": speed, "memory": memory, "ladder": ladder, "crossover": crossover, "traffic": traffic,
          "operations": operations}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("csv", help="a result of flashbench sweep")
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "fp16", "fp32"])
    arguments = parser.parse_args()
    try:
        frame = read(arguments.csv)
    except (OSError, ValueError, AttributeError) as error:
        sys.exit(f"{arguments.csv}: expected the CSV of a sweep: {error}")
    try:
        TABLES[arguments.table](frame, arguments.dtype)
    except ValueError as error:
        sys.exit(f"{arguments.csv}: {error}")


if __name__ == "__main__":
    main()
