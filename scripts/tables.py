#!/usr/bin/python3
"""Tables for the documents, in Markdown, from result CSVs: of the grid of the FlashAttention papers
(hidden size 2048, 16,384 tokens).

  scripts/tables.py speed results/h200/h200.csv      TFLOP/s and speed-up of tiled over length
  scripts/tables.py memory results/h200/h200.csv     peak memory over length, and the share saved
  scripts/tables.py ladder results/h200/ladder.csv   time, TFLOP/s, bytes measured and peak memory of
                                                     each provider and the ceiling, full attention
  scripts/tables.py crossover FILE.csv...            the lengths at which tiled is faster than naive
  scripts/tables.py rivals results/h200/h200.csv     how many times faster than cuDNN and
                                                     FlashAttention-2 our kernels are
  scripts/tables.py rival results/h200/h200.csv --provider cudnn       the same by head_dim and mask
  scripts/tables.py traffic results/h200/h200.csv    measured over compulsory bytes of memory / bytes
                                                     through the L2 over those that the loops request
  scripts/tables.py operations results/h200/h200.csv counted tensor-core operations over claimed FLOPs
  scripts/tables.py wall results/h200/h200.json      where the time of the whole sweep went

scripts/docs writes them into the documents.
"""
import argparse
import json
import sys

import numpy as np
import pandas as pd

RIVALS = {"cudnn": "cuDNN", "plugin:torch_flash": "FlashAttention-2"}
OURS = [("tiled", "forward"), ("tiled", "backward"), ("tiled:sm80", "forward"), ("tiled:sm80", "backward")]


def read(path):
    frame = pd.read_csv(path)
    return frame[(frame.status == "ok") & (frame.q_len == frame.kv_len)
                 & (frame.q_heads == frame.kv_heads)]


def grid(frame):
    """Without repetitions of a case."""
    return frame[(frame.q_heads * frame.head_dim == 2048) & (frame.batch * frame.q_len == 16384)]


def short(frame):
    """Of configs/short.json: that hidden size in batches of 16."""
    return frame[(frame.q_heads * frame.head_dim == 2048) & (frame.batch == 16)]


def mask(name):
    return "full" if name == "none" else "causal"


def length(tokens):
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |",
             "|" + "|".join(["---"] + ["---:"] * (len(header) - 1)) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def over_length(frame, keys, label, cell):
    """A row for each group of `keys`, a column for each length."""
    lengths = sorted(frame.q_len.unique())
    rows = []
    for key, group in frame.groupby(keys, sort=False):
        by_length = {n: cell(part) for n, part in group.groupby("q_len")}
        rows.append([label(key)] + [by_length.get(n, "") for n in lengths])
    return table([""] + [length(n) for n in lengths], rows)


def speed(frame, _):
    def cell(part):
        tiled = part[part.provider == "tiled"]
        if tiled.empty:
            return ""
        row = tiled.iloc[0]
        return f"{row.tflops_convention:.0f} ({row.speedup_vs_naive:.2f}x)"

    return over_length(grid(frame), ["pass", "head_dim", "mask"],
                       lambda key: f"{key[0]} d{key[1]} {mask(key[2])}", cell)


def memory(frame, _):
    frame = grid(frame)
    frame = frame[frame["mask"] == "none"]

    def cell(part):
        peak = part.set_index("provider").peak_bytes / 2**20
        if not {"naive", "tiled"} <= set(peak.index):
            return ""
        return f"{peak['naive']:.0f} / {peak['tiled']:.0f} ({100 * (1 - peak['tiled'] / peak['naive']):.0f}%)"

    return over_length(frame, ["pass", "head_dim"], lambda key: f"{key[0]} d{key[1]}", cell)


def ladder(frame, _):
    """A row for each provider, in the order of the file; columns for each head_dim, at one length."""
    frame = grid(frame)
    frame = frame[(frame["mask"] == "none") & (frame["pass"] == "forward")]
    if frame.q_len.nunique() != 1:
        raise ValueError(f"expected one length, found {frame.q_len.nunique()}: choose one by --length")
    head_dims = sorted(frame.head_dim.unique())

    def cells(milliseconds, tflops, moved, peak):
        return [f"{milliseconds:.3f}", f"{tflops:.0f}", "" if np.isnan(moved) else f"{moved / 2**20:.0f}",
                f"{peak / 2**20:.0f}"]

    def of_provider(row):
        return cells(row.median_ms, row.tflops, row.bytes_measured, row.peak_bytes)

    def of_ceiling(row):
        """The GEMM in the same rounds, which moves and keeps what no implementation can do without."""
        share = row.pct_of_ceiling / 100
        return cells(row.median_ms * share, row.tflops / share, row.bytes_compulsory,
                     row.peak_bytes - row.workspace_bytes)

    header = [""]
    for head_dim in head_dims:
        header += [f"d{head_dim} ms", "TFLOP/s", "MiB moved", "MiB peak"]
    lines = {name: [name] for name in frame.provider.unique()}
    ceiling = ["ceiling"]
    for head_dim in head_dims:
        part = frame[frame.head_dim == head_dim].set_index("provider")
        for name, line in lines.items():
            line += of_provider(part.loc[name]) if name in part.index else [""] * 4
        shares = part[part.pct_of_ceiling.notna()]  # none where a provider exceeds the GEMM
        ceiling += of_ceiling(shares.iloc[0]) if len(shares) else [""] * 4
    return table(header, [*lines.values(), ceiling])


def crossover(frame, _):
    """The lengths at which it is faster than naive in every one of the files."""
    frame = pd.concat([grid(frame), short(frame)])
    tiled = frame[frame.provider == "tiled"]
    head_dims = sorted(tiled.head_dim.unique())

    def faster_at(rows):
        worst = rows.groupby("q_len").speedup_vs_naive.min()
        lengths, faster = list(worst.index), list(worst.index[worst > 1])
        if faster in (lengths, []):
            return "all" if faster else "none"
        if faster == lengths[-len(faster):]:
            return f"from {length(faster[0])}"
        if faster == lengths[:len(faster)]:
            return f"up to {length(faster[-1])}"
        return ", ".join(map(length, faster))

    rows = []
    for (which, masked), group in tiled.groupby(["pass", "mask"], sort=False):
        cells = {d: faster_at(part) for d, part in group.groupby("head_dim")}
        rows.append([f"{which} {mask(masked)}"] + [cells.get(d, "") for d in head_dims])
    return table([""] + [f"d{d}" for d in head_dims], rows)


def times_faster(frame, rival, ours, which):
    """The rival's time over ours, for each case that both have."""
    case = ["head_dim", "mask", "q_len"]
    times = frame[frame["pass"] == which].set_index(["provider", *case]).median_ms
    if not {rival, ours} <= set(times.index.get_level_values("provider")):
        return pd.Series(dtype=float)
    return (times[rival] / times[ours]).dropna()


def mean(ratios):
    return float(np.exp(np.log(ratios).mean()))


def mean_and_range(ratios):
    return "" if ratios.empty else f"{mean(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"


def rivals(frame, _):
    frame = grid(frame)
    known = [name for name in RIVALS if name in set(frame.provider)]
    if not known:
        raise ValueError(f"expected rows of {' or '.join(RIVALS)}, found none")
    rows = [[f"`{ours}` {which}"] + [mean_and_range(times_faster(frame, name, ours, which)) for name in known]
            for ours, which in OURS]
    return table([""] + [RIVALS[name] for name in known], rows)


def rival(frame, arguments):
    frame = grid(frame)
    columns = [(ours, which, masked) for ours, which in OURS for masked in ["none", "causal_bottom_right"]]
    ratios = {}
    for ours, which in OURS:
        ratios[ours, which] = times_faster(frame, arguments.provider, ours, which)
    if all(values.empty for values in ratios.values()):
        raise ValueError(f"expected rows of {arguments.provider} and tiled, found none")

    def cell(head_dim, ours, which, masked):
        values = ratios[ours, which]
        if values.empty:
            return ""
        part = values[(values.index.get_level_values("head_dim") == head_dim)
                      & (values.index.get_level_values("mask") == masked)]
        return "" if part.empty else f"{mean(part):.2f}"

    rows = [[f"d{d}"] + [cell(d, *column) for column in columns] for d in sorted(frame.head_dim.unique())]
    return table([""] + [f"`{ours}` {which} {mask(masked)}" for ours, which, masked in columns], rows)


def counted(frame, column):
    """The rows with this column of the hardware counters' figures."""
    if column not in frame.columns or frame[column].isna().all():
        raise ValueError(f"no row has {column}: the sweep read no hardware counters")
    return frame[frame[column].notna()]


def traffic(frame, _):
    def cell(part):
        row = part.iloc[0]
        through_l2 = row.l2_bytes / row.bytes_requested
        return (f"{row.bytes_measured / row.bytes_compulsory:.2f} / "
                + ("–" if np.isnan(through_l2) else f"{through_l2:.2f}"))

    return over_length(counted(grid(frame), "l2_bytes"), ["pass", "head_dim", "mask", "provider"],
                       lambda key: f"{key[0]} d{key[1]} {mask(key[2])} {key[3]}", cell)


def operations(frame, _):
    return over_length(counted(grid(frame), "tensor_ops_per_flop"), ["pass", "head_dim", "mask", "provider"],
                       lambda key: f"{key[0]} d{key[1]} {mask(key[2])} {key[3]}",
                       lambda part: f"{part.iloc[0].tensor_ops_per_flop:.3f}")


def wall(paths):
    """Seconds by phase, over all rows of results in JSON."""
    seconds, cases = {}, set()
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)["results"]
            for row in rows:
                cases.add((path, row["key"]))
                for phase, taken in row.get("wall_s", {}).items():
                    seconds[phase] = seconds.get(phase, 0) + taken
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: expected the JSON of a sweep: {error!r}") from None
    if not seconds:
        raise ValueError(f"{', '.join(paths)}: no row has wall_s: an older flashbench made it")
    rows = [[phase, f"{taken:.1f}", f"{taken / len(cases):.2f}"] for phase, taken in
            [*sorted(seconds.items(), key=lambda item: -item[1]), ("all", sum(seconds.values()))]]
    return table(["phase", "seconds", "a case"], rows)


TABLES = {"speed": speed, "memory": memory, "ladder": ladder, "crossover": crossover, "rivals": rivals,
          "rival": rival, "traffic": traffic, "operations": operations}


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, prog="tables.py",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=[*TABLES, "wall"])
    parser.add_argument("csv", nargs="+", help="results of flashbench sweep")
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "fp16", "fp32"])
    parser.add_argument("--mask", choices=["full", "causal"], help="of this mask alone")
    parser.add_argument("--length", type=int, nargs="+", help="of these lengths alone")
    parser.add_argument("--provider", default="cudnn", help="whose time is over ours (table rival)")
    return parser.parse_args(words)


def make(words):
    """The table that these arguments ask for. Throws OSError and ValueError, with the file's name."""
    arguments = parse(words)
    if arguments.table == "wall":
        return wall(arguments.csv)
    frames = []
    for path in arguments.csv:
        try:
            frames.append(read(path))
        except (OSError, ValueError, AttributeError) as error:
            raise ValueError(f"{path}: expected the CSV of a sweep: {error}") from None
    frame = pd.concat(frames)
    frame = frame[frame.dtype == arguments.dtype]
    if arguments.mask:
        frame = frame[frame["mask"].map(mask) == arguments.mask]
    if arguments.length:
        frame = frame[frame.q_len.isin(arguments.length)]
    try:
        return TABLES[arguments.table](frame, arguments)
    except ValueError as error:
        raise ValueError(f"{', '.join(arguments.csv)}: {error}") from None


if __name__ == "__main__":
    try:
        print(make(sys.argv[1:]))
    except ValueError as problem:
        sys.exit(f"tables.py: {problem}")
