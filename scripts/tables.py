#!/usr/bin/python3
"""Tables and single figures for the documents, from result files. scripts/docs writes them there.

  scripts/tables.py speed FILE.csv       TFLOP/s of tiled, and its speed-up over naive, over length
  scripts/tables.py memory FILE.csv      peak memory of naive and tiled over length, and the share saved
  scripts/tables.py column FILE.csv --column NAME
                                         one column of the CSV over length (bytes in MiB)
  scripts/tables.py ladder FILE.csv      time, TFLOP/s, bytes measured and peak memory of each provider
                                         and of the ceiling, at one length, full attention, forward
  scripts/tables.py crossover FILE.csv...    the lengths at which tiled is faster than naive
  scripts/tables.py rivals FILE.csv      how many times faster than cuDNN and FlashAttention-2 ours are
  scripts/tables.py rival FILE.csv --rival NAME      the same for one rival, by head_dim and mask
  scripts/tables.py grouped FILE.csv     the fastest rival's time over ours, or that of --rival, by K/V heads
  scripts/tables.py behind FILE.csv      the cases in which a rival is faster than ours, the worst first
  scripts/tables.py beside FILE.csv      times of the cases that are not of the grid
  scripts/tables.py packed FILE.csv      FLOP/s of packed requests over those of dense ones that are no longer
  scripts/tables.py models FILE.json     times of tiled for each model of a config, and those of the
                                         rivals over them
  scripts/tables.py generation FILE.csv  milliseconds for the next token, with a cache of K and V and by
                                         computing all tokens again, over the tokens so far
  scripts/tables.py decode FILE.csv      microseconds of each provider by batch and kv_len, and the share of the
                                         time of `stream` that the first one reaches
  scripts/tables.py split FILE.csv...    milliseconds of one GPU and of each way to share its work with others, the
                                         share of linear scaling, and the fastest of PyTorch's context_parallel
  scripts/tables.py cache FILE.csv       microseconds to decode from a K/V cache of 16 bits and of e4m3
  scripts/tables.py pages FILE.csv       microseconds to decode without pages, and the share of that rate with pages, by
                                         page size
  scripts/tables.py lengths FILE.csv     microseconds to decode requests of different lengths, and the shares of the rate
                                         of as many requests of one length with as many keys, and of `stream`
  scripts/tables.py windows FILE.csv     the share of the FLOP/s without a window that providers reach with one, by length
  scripts/tables.py fp8 FILE.csv         TFLOP/s in bf16, on e4m3 inputs and on bf16 inputs that are rounded to e4m3
                                         on the way, and the errors of O
  scripts/tables.py traffic FILE.csv     measured over compulsory bytes of memory / bytes through the
                                         L2 over those that the loops request
  scripts/tables.py value FILE.csv --as STATISTIC (--column NAME | --rival NAME | --share pages|lengths|windows)
                                         one figure: of a column, of a rival's time over ours, or of the shares in
                                         a table of pages, lengths or windows, in percent
  scripts/tables.py wall FILE.json...    where the time of a whole sweep went
  scripts/tables.py calibration FILE.json    the largest lambda of each provider
  scripts/tables.py recipes FILE.json    rmse of each recipe of quantize, by inputs and head_dim, in thousandths
  scripts/tables.py outliers FILE.json   error of O over its size for inputs with outliers, in fp16 and by each
                                         recipe, by head_dim, in thousandths
  scripts/tables.py promotion FILE.json  error of O over its size for V with a mean, by kv_len and accumulator
  scripts/tables.py ncu FILE.json...     our counts over those of Nsight Compute

A FILE.json may be compressed (FILE.json.gz). All that read CSVs take verified rows of
self-attention with as many K/V heads as query heads, and of a grid: hidden size and tokens of the
FlashAttention papers, unless --grid names others. With `--grid any` they take every case. `--rival
fastest` takes the fastest rival of each case. `--filter page_size=|16` takes the rows without a page
size, too.
"""
import argparse
import collections
import json
import sys

import numpy as np
import pandas as pd
from lib import decoding_tables as decoding
from lib import error_tables as errors
from lib.json_file import read_json
from lib.table_rows import CASE, SIZES, length, mask, meets, read, results, table, with_text

GRID = "hidden=2048,tokens=16384"
SHORT = "hidden=2048,batch=16"  # of configs/short.json
ANY = "any"
RIVALS = {"cudnn": "cuDNN", "plugin:fa3": "FlashAttention-3", "plugin:torch_flash": "FlashAttention-2"}
FASTEST = "fastest"  # of the rivals that ran a case
METRICS = {"dram__bytes_read": "read", "dram__bytes_write": "written", "lts__": "L2",
           "sm__ops_path_tensor": "tensor operations"}
PASSES = ["forward", "backward"]
WINDOW = ["window_left", "window_right"]
OURS = [("tiled", "forward"), ("tiled", "backward"), ("tiled:sm80", "forward"), ("tiled:sm80", "backward")]


def described(key):
    """The label of a row, from pass, head_dim, mask and, if given, the provider."""
    which, head_dim, masked, *provider = key
    return " ".join([which, f"d{head_dim}", mask(masked), *provider])


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

    return over_length(frame, ["pass", "head_dim", "mask"], described, cell)


def column(frame, arguments):
    """A row for each kind of case, and for each provider if several are requested."""
    frame = frame[frame.provider.isin(arguments.provider)]
    frame = frame.assign(figure=figures(frame, arguments))

    def cell(part):
        return written(part.figure.iloc[0], arguments)

    keys = ["pass", "head_dim", "mask"] + (["provider"] if len(arguments.provider) > 1 else [])
    return over_length(frame, keys, described, cell)


def figures(frame, arguments):
    """The requested column."""
    name = arguments.column
    if frame.empty:
        raise ValueError(f"no row is of {' or '.join(arguments.provider)}")
    if name not in frame.columns or not pd.api.types.is_numeric_dtype(frame[name]):
        raise ValueError(f"expected the name of a column of numbers by --column, found {name!r}")
    return frame[name] / 2**20 if name.endswith("_bytes") or name.startswith("bytes_") else frame[name]


def written(figure, arguments):
    return f"{figure:.{arguments.digits}f}"


def memory(frame, _):
    frame = frame[frame["mask"] == "none"]

    def cell(part):
        peak = part.set_index("provider").peak_bytes / 2**20
        if not {"naive", "tiled"} <= set(peak.index):
            return ""
        return f"{peak['naive']:.0f} / {peak['tiled']:.0f} ({100 * (1 - peak['tiled'] / peak['naive']):.0f}%)"

    return over_length(frame, ["pass", "head_dim"], lambda key: f"{key[0]} d{key[1]}", cell)


def ladder(frame, _):
    """A row for each provider, in the order of the file; columns for each head_dim, at one length."""
    frame = frame[(frame["mask"] == "none") & (frame["pass"] == "forward")]
    if frame.q_len.nunique() != 1:
        raise ValueError(f"expected one length, found {frame.q_len.nunique()}: choose one by --filter q_len=N")
    head_dims = sorted(frame.head_dim.unique())

    def cells(milliseconds, tflops, moved, peak):
        return [f"{milliseconds:.3f}", f"{tflops:.0f}", "" if np.isnan(moved) else f"{moved / 2**20:.0f}",
                f"{peak / 2**20:.0f}"]

    def of_provider(row):
        return cells(row.median_ms, row.tflops, row.bytes_measured, row.peak_bytes)

    def of_ceiling(row):
        """The GEMM in the same rounds, with the compulsory bytes and memory of any implementation."""
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
        shares = part[part.pct_of_ceiling.notna()]  # none if a provider exceeds the GEMM
        ceiling += of_ceiling(shares.iloc[0]) if len(shares) else [""] * 4
    return table(header, [*lines.values(), ceiling])


def crossover(frame, _):
    """The lengths at which tiled is faster than naive in every file."""
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
    """The rival's time over ours, for each case of these passes that both ran."""
    case = [*CASE, *SIZES, "dtype", "variant"]
    times = frame[frame["pass"].isin(which)].set_index(["provider", *case]).median_ms
    providers = set(times.index.get_level_values("provider"))
    if ours not in providers or (rival not in providers and rival != FASTEST):
        return pd.Series(dtype=float)
    if rival == FASTEST:
        theirs = times[times.index.get_level_values("provider").isin(RIVALS)].groupby(level=case, sort=False).min()
    else:
        theirs = times[rival]
    return (theirs / times[ours]).dropna()


def mean(ratios):
    return float(np.exp(np.log(ratios).mean()))


def mean_and_range(ratios):
    return "" if ratios.empty else f"{mean(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"


def speedup_of(rounded, bf16):
    """The time of bf16 over that of rounded inputs: in the same rounds, where a file has it."""
    same_rounds = rounded.get("speedup_vs_unrounded")
    return bf16.median_ms / rounded.median_ms if pd.isna(same_rounds) else same_rounds


def fp8(frame, _):
    """Errors are root mean squares over that of O: of bf16 with its own inputs, and of rounding them to e4m3."""
    frame = frame.assign(kind=frame.dtype + frame["quantize"].fillna("").ne("").map({True: " rounded", False: ""}))
    rows = []
    for (masked, head_dim, q_len), part in frame.groupby(["mask", "head_dim", "q_len"], sort=False):
        by = part.set_index(["provider", "kind"])
        bf16, e4m3, rounded = (by.loc[("tiled", kind)] for kind in ["bf16", "e4m3", "bf16 rounded"])
        unpromoted, cudnn = (by.loc[(name, "e4m3")] for name in ["tiled:sm90_e4m3_unpromoted", "cudnn"])
        rows.append([f"d{head_dim} {mask(masked)} {length(q_len)}", f"{bf16.tflops_convention:.0f}",
                     f"{e4m3.tflops_convention:.0f} ({bf16.median_ms / e4m3.median_ms:.2f}x)",
                     f"{unpromoted.tflops_convention:.0f}",
                     f"{cudnn.tflops_convention:.0f} ({cudnn.median_ms / e4m3.median_ms:.2f}x)",
                     f"{rounded.tflops_convention:.0f} ({speedup_of(rounded, bf16):.2f}x)",
                     f"{rounded.rounding_us:.0f} ({rounded.rounding_pct_of_copy:.0f}%)",
                     f"{100 * bf16.rel_rms_err:.2f}%", f"{100 * rounded.rel_rmse_total:.1f}%"])
    return table(["", "bf16", "e4m3", "e4m3, not promoted", "cuDNN, e4m3", "bf16 rounded to e4m3",
                  "rounding alone, µs", "error of bf16", "error of e4m3"], rows)


def ours_in(frame):
    """Our providers and the passes that they have rows of."""
    return [(ours, which) for ours, which in OURS if ((frame.provider == ours) & (frame["pass"] == which)).any()]


def rivals(frame, _):
    known = [name for name in RIVALS if name in set(frame.provider)]
    if not known:
        raise ValueError(f"expected rows of {' or '.join(RIVALS)}, found none")
    rows = [[f"`{ours}` {which}"] + [mean_and_range(times_faster(frame, name, ours, [which])) for name in known]
            for ours, which in ours_in(frame)]
    return table([""] + [RIVALS[name] for name in known], rows)


def rival(frame, arguments):
    ours_here = ours_in(frame)
    ratios = {key: times_faster(frame, arguments.rival, key[0], [key[1]]) for key in ours_here}
    if all(values.empty for values in ratios.values()):
        raise ValueError(f"expected rows of {arguments.rival} and tiled, found none")
    columns = [(key, masked) for key in ours_here for masked in ["none", "causal_bottom_right"]]

    def cell(head_dim, key, masked):
        values = ratios[key]
        if values.empty:
            return ""
        part = values[(values.index.get_level_values("head_dim") == head_dim)
                      & (values.index.get_level_values("mask") == masked)]
        return "" if part.empty else f"{mean(part):.2f}"

    rows = [[f"d{d}"] + [cell(d, *column) for column in columns] for d in sorted(frame.head_dim.unique())]
    return table([""] + [f"`{ours}` {which} {mask(masked)}" for (ours, which), masked in columns], rows)


def behind(frame, _):
    """Ours, and each rival's time over it, where one is faster."""
    ours = frame[frame.provider == "tiled"].set_index([*CASE, *SIZES, "dtype", "variant"])
    faster = times_faster(frame, FASTEST, "tiled", PASSES)
    names = [name for name in RIVALS if name in set(frame.provider)]
    ratios = {name: times_faster(frame, name, "tiled", PASSES) for name in names}
    rows = []
    for key in faster[faster < 1].sort_values().index:
        which, masked, *_ = key
        case = dict(zip(ours.index.names, key))
        rows.append([f"{which} {mask(masked)}", *shape_of(case), f"{ours.median_ms[key]:.3f}"]
                    + [f"{ratios[name][key]:.2f}" if key in ratios[name].index else "" for name in names])
    return table(["", "batch", "heads", "length", "d", "ms", *(RIVALS[name] for name in names)], rows)


def beside(frame, _):
    """Milliseconds of every provider, a row for each case that is not of the grid."""
    names = list(frame.provider.unique())
    rows = []
    for key, part in frame.groupby(CASE + SIZES, sort=False):
        which, masked, head_dim, q_len, batch, q_heads, kv_heads, kv_len = key
        times = part.set_index("provider").median_ms
        heads = f"{q_heads}" if q_heads == kv_heads else f"{q_heads}/{kv_heads}"
        lengths = f"{q_len}" if q_len == kv_len else f"{q_len}/{kv_len}"
        rows.append([f"{which} {mask(masked)}", f"{batch}", heads, lengths, f"{head_dim}"]
                    + [f"{times[name]:.3f}" if name in times.index else "" for name in names])
    return table(["", "batch", "heads", "length", "d", *names], rows)


def grouped(frame, arguments):
    """The time of --rival, or else of the fastest other provider, over ours: a column for each number of K/V heads."""
    ours = arguments.provider[0]
    counts = sorted(frame.kv_heads.unique())
    rows = []
    for (head_dim, masked, q_len), part in frame.groupby(["head_dim", "mask", "q_len"]):
        cells = []
        for count in counts:
            times = part[part.kv_heads == count].set_index("provider").median_ms
            others = times[times.index == arguments.rival] if arguments.rival else times.drop(ours, errors="ignore")
            has_both = ours in times.index and len(others)
            cells.append(f"{others.min() / times[ours]:.2f}" if has_both else "")
        rows.append([f"d{head_dim} {mask(masked)} {q_len}", *cells])
    return table(["K/V heads", *map(str, counts)], rows)


def packed(frame, arguments):
    """A column for each batch: the longest dense case that is no longer than its longest request is the whole."""
    frame = frame[frame.provider == arguments.provider[0]]
    dense, ragged = (frame[frame.layout == layout] for layout in ["bshd", "ragged"])
    batches = list(dict.fromkeys(zip(ragged.batch, ragged.q_len, ragged.lengths)))

    def share(row):
        whole = dense[(dense[["pass", "mask", "head_dim"]] == row[["pass", "mask", "head_dim"]]).all(axis=1)
                      & (dense.q_len <= row.q_len)]
        if whole.empty:
            raise ValueError(f"expected a dense case, found no dense case of at most {row.q_len} tokens")
        return f"{100 * row.tflops / whole.loc[whole.q_len.idxmax()].tflops:.0f}%"

    def label(batch, longest, lengths):
        all_tokens = int(lengths.partition("q")[0])
        return f"{batch} {'×' if all_tokens == batch * longest else 'up to'} {longest}"

    rows = []
    for key, part in ragged.groupby(["pass", "head_dim", "mask"], sort=False):
        of_batch = {(row.batch, row.q_len, row.lengths): share(row) for _, row in part.iterrows()}
        rows.append([described(key), *(of_batch.get(batch, "") for batch in batches)])
    return table(["", *(label(*batch) for batch in batches)], rows)


def value(frame, arguments):
    """One figure, or two: a statistic over cases."""
    if arguments.share:
        found = SHARES[arguments.share](frame, arguments).share.dropna()
    elif arguments.rival:
        found = times_faster(frame, arguments.rival, arguments.provider[0], ["forward", "backward"])
    else:
        found = figures(frame[frame.provider.isin(arguments.provider)], arguments)
    if found.empty or found.isna().any():
        raise ValueError("expected a figure in every row, found none in some")
    return STATISTICS[arguments.statistic](found, lambda figure: written(figure, arguments))


STATISTICS = {
    "mean": lambda found, text: text(mean(found)),
    "least": lambda found, text: text(found.min()),
    "most": lambda found, text: text(found.max()),
    "range": lambda found, text: f"{text(found.min())} to {text(found.max())}",
    "wins": lambda found, text: f"{(found > 1).sum()} of {len(found)}",
}


def counted(frame, column):
    """The rows that have this hardware counter column."""
    if column not in frame.columns or frame[column].isna().all():
        raise ValueError(f"no row has {column}: the sweep read no hardware counters")
    return frame[frame[column].notna()]


def traffic(frame, _):
    def cell(part):
        row = part.iloc[0]
        through_l2 = row.l2_bytes / row.bytes_requested
        return (f"{row.bytes_measured / row.bytes_compulsory:.2f} / "
                + ("–" if np.isnan(through_l2) else f"{through_l2:.2f}"))

    return over_length(counted(frame, "l2_bytes"), ["pass", "head_dim", "mask", "provider"], described, cell)


def ncu(paths):
    """Our counts relative to Nsight Compute's; of a case in several files the last one counts."""
    cases = {}
    for compared in map(read_json, paths):
        cases |= {row["case"]: {} for row in compared}
        for row in compared:
            metric = next(name for prefix, name in METRICS.items() if row["metric"].startswith(prefix))
            cases[row["case"]].setdefault(row["kernel"], {})[metric] = f"{100 * row['difference']:+.1f}%"
    rows = [[case, kernel, *(differences.get(metric, "") for metric in METRICS.values())]
            for case, kernels in cases.items() for kernel, differences in kernels.items()]
    return table(["case", "kernel", *METRICS.values()], rows)


def wall(paths):
    """Seconds by phase, over all rows."""
    seconds, cases = {}, set()
    for path, row in results(paths):
        cases.add((path, row["key"]))
        for phase, taken in row.get("wall_s", {}).items():
            seconds[phase] = seconds.get(phase, 0) + taken
    if not seconds:
        raise ValueError("no row has wall_s: an older flashbench made it")
    rows = [[phase, f"{taken:.1f}", f"{taken / len(cases):.2f}"] for phase, taken in
            [*sorted(seconds.items(), key=lambda item: -item[1]), ("all", sum(seconds.values()))]]
    return table(["phase", "seconds", "a case"], rows)


def generation(frame, arguments):
    """A row for each number of K/V heads, and the bytes that a token adds to the cache of a layer."""
    frame = frame[(frame.provider == arguments.provider[0]) & (frame["pass"] == "forward") & (frame.kv_len > 1)]
    lengths = sorted(frame.kv_len.unique())
    rows = []
    for (dtype, q_heads, kv_heads, head_dim), part in frame.groupby(["dtype", "q_heads", "kv_heads", "head_dim"],
                                                                    sort=False):
        def cell(tokens, part=part):
            at = part[part.kv_len == tokens]
            cached, again = at[at.q_len == 1].median_ms, at[at.q_len == tokens].median_ms
            return f"{cached.iloc[0]:.3g} / {again.iloc[0]:.3g}" if len(cached) == len(again) == 1 else ""

        token = 2 * kv_heads * head_dim * (4 if dtype == "fp32" else 2)
        rows.append([f"{q_heads} query heads, {kv_heads} K/V, d{head_dim}", f"{token}", *map(cell, lengths)])
    if not any(any(row[2:]) for row in rows):
        raise ValueError("expected rows of one query and of as many queries as keys, found no two of one length")
    return table(["", "cache, bytes a token", *map(length, lengths)], rows)


def split(frame, arguments):
    """A row for each case of several GPUs."""
    one = arguments.provider[0]
    rivals = [name for name in frame.provider.unique() if name.startswith("torch:context_parallel")]
    ways = [name for name in frame.provider.unique() if name != one and name not in rivals]
    rows = []
    shape = ["pass", "mask", "batch", "q_heads", "kv_heads", "q_len", "kv_len", "gpus"]
    for (which, masked, batch, q_heads, kv_heads, queries, keys, gpus), part in frame.groupby(shape, sort=False):
        by_provider = part.set_index("provider")
        if one not in by_provider.index:
            raise ValueError(f"expected a row of {one} for {which} at {keys} keys")

        def cell(name, of=by_provider):
            return f"{of.median_ms[name]:.4g} ({of.eff_strong[name]:.0%})" if name in of.index else ""

        heads = f"{q_heads}" if q_heads == kv_heads else f"{q_heads}/{kv_heads}"
        rival = by_provider.median_ms[by_provider.index.isin(rivals)].min()
        if queries == keys:
            what = f"{which} {mask(masked)} {length(keys)}"
        else:
            what = f"{batch} × {length(keys)}, {queries} {'queries' if queries > 1 else 'query'}"
        rows.append([f"{what}, {heads} heads, {gpus:.0f} GPUs",
                     f"{by_provider.median_ms[one]:.4g}", *map(cell, ways),
                     *(["" if pd.isna(rival) else f"{rival:.4g}"] if rivals else [])])
    return table(["", "one GPU", *(f"`{name}`" for name in ways), *(["PyTorch"] if rivals else [])], rows)


def in_windows(frame, arguments):
    """The cases with a window that there are without one, too, and their share of its FLOP/s."""
    frame = with_text(frame[frame.provider.isin(arguments.provider)], WINDOW)
    windowed = (frame[WINDOW] != "").any(axis=1)
    case = ["provider", "dtype", *CASE, *SIZES]
    own = frame[windowed].merge(frame[~windowed][[*case, "tflops"]], on=case, suffixes=("", "_without"))
    return own.assign(share=100 * own.tflops / own.tflops_without)


SHARES = {"pages": decoding.in_pages, "lengths": decoding.of_lengths, "windows": in_windows}


def windows(frame, arguments):
    """A row for each pass, head_dim and provider: the share by length of the FLOP/s without a window."""
    own = in_windows(frame, arguments)
    if own.empty:
        raise ValueError("expected cases with a window and without, found none in both ways")
    lengths = sorted(own.q_len.unique())
    rows = []
    for (which, head_dim, provider), part in own.groupby(["pass", "head_dim", "provider"], sort=False):
        shares = part.set_index("q_len").share
        if not shares.index.is_unique:
            raise ValueError(f"expected one window for {which} at head_dim {head_dim}, found several: choose by --filter")
        rows.append([f"{which} d{head_dim}", f"`{provider}`",
                     *(f"{shares[at]:.0f}%" if at in shares.index else "" for at in lengths)])
    return table(["", "", *map(length, lengths)], rows)


def models(paths):
    """A row for each model, batch and length: tiled's milliseconds, and the rivals' times over them."""
    times = collections.defaultdict(dict)
    for path in paths:
        document = read_json(path)
        for row in document["results"]:
            for model in models_of(row["case"], document["config"]["cases"]) if row["status"] == "ok" else []:
                times[model, shape_of(row["case"])].setdefault(row["case"]["pass"], {})[row["provider"]] = (
                    row["performance"]["median_ms"])
    known = [name for name in RIVALS if any(name in by_pass for cell in times.values() for by_pass in cell.values())]
    if not known:
        raise ValueError(f"expected verified rows of models and of {' or '.join(RIVALS)}, found none")

    def cells(by_provider):
        ours = by_provider.get("tiled")
        return [f"{ours:.3f}" if ours else ""] + [
            f"{by_provider[name] / ours:.2f}" if ours and name in by_provider else "" for name in known]

    passes = [which for which in PASSES if any(which in by_pass for by_pass in times.values())]
    rows = [[model, *shape, *(text for which in passes for text in cells(cell.get(which, {})))]
            for (model, shape), cell in times.items()]
    header = ["", "batch", "heads", "length", "d"]
    for which in passes:
        header += [f"{which}, ms", *(RIVALS[name] for name in known)]
    return table(header, rows)


def models_of(case, blocks):
    """The models of a config's blocks that have this case."""
    def has(block):
        wanted = {"kv_heads": block["q_heads"], **block}
        if "seq" in wanted:
            wanted |= {"q_len": wanted["seq"], "kv_len": case["q_len"]}
        return all(case[name] in (values if isinstance(values, list) else [values])
                   for name, values in wanted.items() if name not in ("model", "seq"))

    return [block["model"] for block in blocks if "model" in block and has(block)]


def shape_of(case):
    """What names a row in a table of models."""
    both = [("q_heads", "kv_heads"), ("q_len", "kv_len")]
    heads, lengths = (f"{case[a]}" if case[a] == case[b] else f"{case[a]}/{case[b]}" for a, b in both)
    return str(case["batch"]), heads, lengths, str(case["head_dim"])


TABLES = {"speed": speed, "memory": memory, "column": column, "ladder": ladder, "crossover": crossover,
          "rivals": rivals, "rival": rival, "grouped": grouped, "behind": behind,
          "beside": beside, "packed": packed, "generation": generation, "decode": decoding.decode,
          "split": split, "cache": decoding.cache, "pages": decoding.pages, "lengths": decoding.lengths, "windows": windows,
          "fp8": fp8, "traffic": traffic, "value": value}
OF_JSON = {"models": models, "wall": wall, "ncu": ncu, "calibration": errors.calibration,
           "recipes": errors.recipes, "outliers": errors.outliers, "promotion": errors.promotion}


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, prog="tables.py",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=[*TABLES, *OF_JSON])
    parser.add_argument("files", nargs="+", help="results of flashbench sweep")
    parser.add_argument("--grid", default=GRID, help=f"hidden size and tokens, or batch, of the cases ({GRID}); {ANY}: all")
    parser.add_argument("--filter", default="", help="of these rows alone, such as mask=none,q_len=512|1024")
    parser.add_argument("--provider", nargs="+", default=["tiled"], help="whose figures (column, value, grouped, packed)")
    parser.add_argument("--column", help="which figure (column, value)")
    parser.add_argument("--rival", help="whose time is over ours (rival, value, grouped)")
    parser.add_argument("--share", choices=SHARES, help="whose shares of the rate (value)")
    parser.add_argument("--digits", type=int, default=2, help="behind the point (column, value)")
    parser.add_argument("--as", dest="statistic", choices=STATISTICS, default="range",
                        help="of all cases (value); mean is geometric, wins counts ratios above 1")
    return parser.parse_args(words)


def rows(arguments):
    """The rows for the table."""
    frame = pd.concat([read(path) for path in arguments.files], ignore_index=True)
    if arguments.grid == ANY:
        in_grid = pd.Series(True, frame.index)
    else:
        in_grid = meets(frame, arguments.grid) & (frame.q_len == frame.kv_len) & (frame.q_heads == frame.kv_heads)
    if arguments.table == "crossover":
        in_grid |= meets(frame, SHORT)
    if arguments.table == "beside":
        frame = frame[~in_grid]
    elif arguments.table != "grouped":  # which uses all heads and lengths
        frame = frame[in_grid]
    frame = frame[meets(frame, arguments.filter)]
    if frame.empty:
        raise ValueError(f"no verified row has {arguments.grid} and {arguments.filter}".removesuffix(" and "))
    again = frame[frame.duplicated(["provider", "dtype", *CASE, *SIZES, "variant"])]
    if not again.empty:
        raise ValueError(f"expected each case once, found again: {again.iloc[0][['provider', *CASE, *SIZES]].to_dict()}")
    return frame


def make(words):
    """The table for these arguments. Raises ValueError with the files' names."""
    arguments = parse(words)
    try:
        if arguments.table in OF_JSON:
            return OF_JSON[arguments.table](arguments.files)
        return TABLES[arguments.table](rows(arguments), arguments)
    except (AttributeError, KeyError, OSError, StopIteration, TypeError, json.JSONDecodeError) as error:
        kind = "JSON" if arguments.table in OF_JSON else "CSV"
        raise ValueError(f"{', '.join(arguments.files)}: expected the {kind} of a sweep: {error!r}") from None
    except ValueError as error:
        raise ValueError(f"{', '.join(arguments.files)}: {error}") from None


if __name__ == "__main__":
    try:
        print(make(sys.argv[1:]))
    except ValueError as problem:
        sys.exit(f"tables.py: {problem}")
