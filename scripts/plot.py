#!/usr/bin/python3
"""Plots result files of flashbench: time, FLOP/s, memory, traffic and roofline.

    scripts/plot.py results/cpu/cpu.csv -o plots

Writes DIR/<plot>_<pass>_<dtype>.png and .svg, with one panel for each head_dim and mask (and for
whatever else differs but the length) and one line for each provider. Rows that did not run or did
not verify are left out, and counted on stderr. The roofline's bandwidth comes from the .json beside
the .csv.
"""

import argparse
import itertools
import json
import math
import sys
from collections import namedtuple
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402: the backend comes first
import pandas as pd  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

SCHEMA = 1
TEXT_COLUMNS = ["provider", "kernel", "device", "pass", "dtype", "mask", "status", "reason",
                "verified", "layout", "distribution"]
NUMBER_COLUMNS = ["schema", "batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim",
                  "median_ms", "ci_low_ms", "ci_high_ms", "tflops", "pct_of_ceiling",
                  "bytes_compulsory", "bytes_requested", "bytes_measured", "intensity",
                  "peak_bytes", "workspace_bytes", "seed"]

# Okabe and Ito's palette, which reads alike for colour-blind people, in the order of first use.
COLOURS = ["#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKERS = ["s", "o", "^", "D", "v", "P", "X"]
CEILING = "#555555"
MASKS = {"none": "no mask", "causal_top_left": "causal, top left",
         "causal_bottom_right": "causal, bottom right"}
PANELS_PER_FIGURE = 12
TITLE_INCHES, LEGEND_LINE_INCHES = 0.38, 0.22
PANEL_INCHES = (4.2, 3.2)
LEGEND_COLUMNS = 3

plt.rcParams.update({
    "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white",
    "font.size": 10, "axes.titlesize": 10, "axes.labelsize": 10, "legend.fontsize": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#DDDDDD", "grid.linewidth": 0.6, "axes.axisbelow": True,
    "lines.linewidth": 1.8, "lines.markersize": 5, "svg.hashsalt": "flashbench",
})


# How a figure shows FLOP/s, and the bytes a second of a copy or None.
Rate = namedtuple("Rate", ["unit", "scale", "bandwidth"])


class BadFile(Exception):
    """A file that is not what this program reads."""


def main():
    arguments = parse_arguments()
    try:
        rows = pd.concat([read_csv(path) for path in arguments.csv], ignore_index=True)
        bandwidth = read_bandwidth(arguments)
        rows = name_lines(leave_out_unusable(rows))
        arguments.out.mkdir(parents=True, exist_ok=True)
        written = draw_all(rows, bandwidth, arguments.out)
    except (BadFile, OSError) as error:
        sys.exit(f"plot.py: {error}")
    for path in written:
        print(path)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="+", type=Path, help="result files (CSV)")
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR",
                        help="folder for the plots; made if missing")
    parser.add_argument("--json", type=Path, metavar="FILE",
                        help="result file with the measured bandwidth (default: beside the CSV)")
    return parser.parse_args()


# ---- reading


def read_csv(path):
    try:
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise BadFile(f"{path}: not a CSV file: {error}") from None
    missing = [name for name in NUMBER_COLUMNS + TEXT_COLUMNS if name not in rows]
    if missing:
        raise BadFile(f"{path}: not a result of flashbench: it has no column {', '.join(missing)}")
    for name in NUMBER_COLUMNS:
        numbers = pd.to_numeric(rows[name].where(rows[name] != ""), errors="coerce")
        wrong = rows.index[numbers.isna() & (rows[name] != "")]
        if len(wrong):
            raise BadFile(f"{path}: row {wrong[0] + 2}, column {name}: expected a number, found "
                          f"'{rows[name][wrong[0]]}'")
        rows[name] = numbers
    masks = set(rows["mask"]) - set(MASKS)
    if masks:
        raise BadFile(f"{path}: expected a mask of {', '.join(MASKS)}, found '{min(masks)}'")
    versions = set(rows["schema"].dropna()) - {SCHEMA}
    if versions:
        raise BadFile(f"{path}: expected schema {SCHEMA}, found {min(versions):g}")
    rows["file"] = path.stem
    return rows


def read_bandwidth(arguments):
    """Bytes a second of the measured copy, or None."""
    if arguments.json:
        candidates = [arguments.json]
    else:
        candidates = [path.with_suffix(".json") for path in arguments.csv]
        candidates = [path for path in candidates if path.exists()]
    for path in candidates:
        try:
            ceilings = json.loads(path.read_text())["ceilings"]
            rates = [ceiling["rate"] for ceiling in ceilings if ceiling["name"] == "copy"]
        except (ValueError, KeyError, TypeError) as error:
            raise BadFile(f"{path}: not a result of flashbench: {error!r}") from None
        if rates:
            return float(rates[0])
    print("plot.py: no measured bandwidth: the roofline has no slope", file=sys.stderr)
    return None


def leave_out_unusable(rows):
    """The rows with a verified time; says which others there were."""
    usable = (rows["status"] == "ok") & rows["median_ms"].notna()
    left_out = rows[~usable]
    for (provider, status), group in left_out.groupby(["provider", "status"]):
        reason = next((text for text in group["reason"] if text), "no time")
        plural = "s" if len(group) > 1 else ""
        print(f"plot.py: left out {len(group)} row{plural} of {provider}: {status} ({reason})",
              file=sys.stderr)
    if not usable.any():
        raise BadFile("nothing to plot: no row has a verified time")
    return rows[usable].copy()


def name_lines(rows):
    """Adds `line`, the name of the line that a row belongs to, and titles for its panel."""
    same_point = ["provider", "device", "pass", "dtype", "mask", "batch", "q_heads", "kv_heads",
                  "q_len", "kv_len", "head_dim", "layout", "distribution", "seed"]
    rows["line"] = rows["provider"]
    if rows.duplicated(same_point).any():
        rows["line"] = rows["provider"] + " (" + rows["file"] + ")"
    rows["shape"] = ["" if q == k else f"q_len {q:g}"
                     for q, k in zip(rows["q_len"], rows["kv_len"])]
    rows["heads"] = [f"{q:g} heads" if q == kv else f"{q:g} query heads, {kv:g} K/V"
                     for q, kv in zip(rows["q_heads"], rows["kv_heads"])]
    return rows


# ---- figures


def draw_all(rows, bandwidth, folder):
    styles = {line: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)])
              for i, line in enumerate(rows["line"].unique())}
    written = []
    for (kind, dtype), group in rows.groupby(["pass", "dtype"], sort=False):
        panels = split_into_panels(group)
        pages = [panels[i:i + PANELS_PER_FIGURE] for i in range(0, len(panels), PANELS_PER_FIGURE)]
        for name, title, draw in [("time", "Time", draw_time),
                                  ("flops", "Arithmetic rate", draw_flops),
                                  ("memory", "Peak memory", draw_memory),
                                  ("traffic", "Memory traffic", draw_traffic),
                                  ("roofline", "Roofline", draw_roofline)]:
            for number, page in enumerate(pages, 1):
                suffix = f"_{number}" if len(pages) > 1 else ""
                figure = draw_page(f"{title}, {kind}, {dtype}", page, styles, draw, bandwidth)
                written += save(figure, folder / f"{name}_{kind}_{dtype}{suffix}")
    return written


def split_into_panels(rows):
    """[(title, rows)]: one panel for each combination of what differs but length and provider."""
    always = ["head_dim", "mask"]
    if_different = ["heads", "shape", "layout", "distribution", "device"]
    keys = always + [name for name in if_different if rows[name].nunique() > 1]
    # Batch and seed may follow the length; they part panels only where they alone tell rows apart.
    for name in ["batch", "seed"]:
        if rows.duplicated(keys + ["line", "q_len", "kv_len"]).any():
            keys.append(name)
    rows = rows.assign(mask=pd.Categorical(rows["mask"], list(MASKS)))
    panels = []
    for values, panel in rows.groupby(keys, sort=True, observed=True):
        words = dict(zip(keys, values))
        title = f"head_dim {words.pop('head_dim'):g}, {MASKS[words.pop('mask')]}"
        rest = [value if isinstance(value, str) else f"{name} {value:g}"
                for name, value in words.items() if value != ""]
        panels.append((title + "\n" + ", ".join(rest) if rest else title,
                       panel.sort_values("kv_len")))
    return panels


def draw_page(title, panels, styles, draw, bandwidth):
    fastest = max(panel["tflops"].max() for _, panel in panels)
    rate = Rate("TFLOP/s", 1, bandwidth) if fastest >= 10 else Rate("GFLOP/s", 1000, bandwidth)
    columns = columns_for(panels)
    lines = math.ceil(len(panels) / columns)
    figure, axes = plt.subplots(lines, columns, squeeze=False, sharey=True)
    for axis, (panel_title, panel) in itertools.zip_longest(axes.flat, panels,
                                                            fillvalue=("", None)):
        if panel is None:
            axis.set_visible(False)
            continue
        axis.set_title(panel_title, loc="left")
        draw(axis, panel, styles, rate)
        if not axis.get_subplotspec().is_first_col():
            axis.set_ylabel("")
    if axes[0, 0].get_yscale() == "linear":
        axes[0, 0].set_ylim(bottom=0)  # of all, when all have been drawn
    devices = {device for _, panel in panels for device in panel["device"]}
    add_header(figure, axes, title, devices.pop() if len(devices) == 1 else "")
    return figure


def add_header(figure, axes, title, device):
    """The title, and below it the legend in one line or two; sizes the figure."""
    handles = {label: handle for axis in axes.flat
               for handle, label in zip(*axis.get_legend_handles_labels())}
    legend_lines = 1 if len(handles) <= LEGEND_COLUMNS else 2
    header = TITLE_INCHES + LEGEND_LINE_INCHES * legend_lines + 0.05
    width = 0.8 + PANEL_INCHES[0] * max(axes.shape[1], 1.4)
    height = header + PANEL_INCHES[1] * axes.shape[0]
    figure.set_size_inches(width, height)
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - header / height))

    top = 1 - 0.1 / height
    figure.suptitle(title, x=0.1 / width, y=top, ha="left", va="top", fontsize=13,
                    fontweight="bold")
    figure.text(1 - 0.1 / width, top, device, ha="right", va="top", color=CEILING)
    figure.legend(handles.values(), handles.keys(), ncols=math.ceil(len(handles) / legend_lines),
                  loc="upper left", bbox_to_anchor=(0, 1 - TITLE_INCHES / height),
                  borderaxespad=0, frameon=False)


def columns_for(panels):
    """As many columns as there are masks, so that a line of panels is one head_dim."""
    masks = panels[0][1]["mask"].nunique() if len(panels) == 1 else len(
        {panel["mask"].iloc[0] for _, panel in panels})
    return masks if masks > 1 and len(panels) % masks == 0 else min(len(panels), 3)


def save(figure, path):
    paths = [path.with_suffix(".png"), path.with_suffix(".svg")]
    figure.savefig(paths[0], dpi=150)
    figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths


# ---- panels


def draw_time(axis, panel, styles, _):
    for line, rows in panel.groupby("line", sort=False):
        colour, marker = styles[line]
        axis.plot(rows["kv_len"], rows["median_ms"], color=colour, marker=marker, label=line)
        axis.fill_between(rows["kv_len"], rows["ci_low_ms"], rows["ci_high_ms"], color=colour,
                          alpha=0.25, linewidth=0)
    axis.set_yscale("log")
    axis.set_ylabel("median time (ms)")
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    length_axis(axis, panel)


def draw_flops(axis, panel, styles, rate):
    for line, rows in panel.groupby("line", sort=False):
        colour, marker = styles[line]
        axis.plot(rows["kv_len"], rows["tflops"] * rate.scale, color=colour, marker=marker,
                  label=line)
    ceiling = gemm_ceiling(panel)
    if ceiling:
        axis.axhline(ceiling * rate.scale, color=CEILING, linestyle="--", linewidth=1.2,
                     label="measured GEMM")
    axis.set_ylabel(rate.unit)
    length_axis(axis, panel)


def draw_memory(axis, panel, styles, _):
    for line, rows in panel.groupby("line", sort=False):
        colour, marker = styles[line]
        axis.plot(rows["kv_len"], rows["peak_bytes"], color=colour, marker=marker,
                  label=f"{line}: all tensors and workspace")
        workspace = rows[rows["workspace_bytes"] > 0]
        axis.plot(workspace["kv_len"], workspace["workspace_bytes"], color=colour, marker=marker,
                  linestyle=":", markerfacecolor="white", label=f"{line}: workspace alone")
    bytes_axis(axis, "peak bytes allocated")
    length_axis(axis, panel)


def draw_traffic(axis, panel, styles, _):
    for line, rows in panel.groupby("line", sort=False):
        colour, marker = styles[line]
        requested = rows[rows["bytes_requested"].notna()]
        if len(requested):
            axis.plot(requested["kv_len"], requested["bytes_requested"], color=colour,
                      marker=marker, label=f"{line}: requested by its loops")
        measured = rows[rows["bytes_measured"].notna()]
        if len(measured):
            axis.plot(measured["kv_len"], measured["bytes_measured"], color=colour, marker=marker,
                      linestyle=":", markerfacecolor="white", label=f"{line}: measured")
    least = panel.drop_duplicates("kv_len")
    axis.plot(least["kv_len"], least["bytes_compulsory"], color=CEILING, marker=".",
              linestyle="--", linewidth=1.2, label="compulsory")
    bytes_axis(axis, "bytes moved")
    length_axis(axis, panel)


def draw_roofline(axis, panel, styles, rate):
    points = panel[panel["intensity"].notna()]
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    for line, rows in points.groupby("line", sort=False):
        colour, marker = styles[line]
        axis.plot(rows["intensity"], rows["tflops"] * rate.scale, color=colour, marker=marker,
                  linewidth=0.8, label=line)
        for row in {0, len(rows) - 1}:
            axis.annotate(length_text(rows["kv_len"].iloc[row]), color=colour, fontsize=8,
                          xy=(rows["intensity"].iloc[row], rows["tflops"].iloc[row] * rate.scale),
                          xytext=(4, -11), textcoords="offset points")
    draw_roof(axis, points, gemm_ceiling(panel), rate)
    axis.margins(y=0.12)  # room for the lengths written below the points
    for part in [axis.xaxis, axis.yaxis]:
        part.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_xlabel("FLOP per byte requested")
    axis.set_ylabel(rate.unit)


def draw_roof(axis, points, ceiling, rate):
    """The measured GEMM, and the measured copy bandwidth up to where they meet."""
    if not ceiling:
        return
    low, high = points["intensity"].min() / 1.5, points["intensity"].max() * 1.5
    knee = ceiling * 1e12 / rate.bandwidth if rate.bandwidth else low
    top = ceiling * rate.scale
    axis.plot([knee, max(high, knee * 2)], [top, top], color=CEILING, linestyle="--",
              linewidth=1.2, label="measured GEMM")
    if rate.bandwidth:
        start = min(points["tflops"].min() / ceiling, 0.5)
        axis.plot([start * knee, knee], [start * top, top], color=CEILING, linewidth=1.2,
                  label="measured copy bandwidth")


# ---- axes


def gemm_ceiling(panel):
    """TFLOP/s of the GEMM that the panel's shares are of: their median, or None."""
    ceilings = (panel["tflops"] / (panel["pct_of_ceiling"] / 100)).dropna()
    return ceilings.median() if len(ceilings) else None


def length_text(length):
    return f"{length / 1024:g}k" if length >= 1024 and length % 1024 == 0 else f"{length:g}"


def length_axis(axis, panel):
    lengths = sorted(panel["kv_len"].unique())
    ticks = lengths[-1:]
    for length in reversed(lengths[:-1]):  # as many as fit side by side
        if math.log2(ticks[-1] / length) >= math.log2(lengths[-1] / lengths[0]) / 9:
            ticks.append(length)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: length_text(value)))
    axis.set_xlabel("sequence length" if (panel["shape"] == "").all() else "K/V length")


def bytes_axis(axis, label):
    def text(value, _):
        for unit in ["B", "KiB", "MiB", "GiB"]:
            if value < 1024:
                break
            value /= 1024
        else:
            unit = "TiB"
        return f"{value:g} {unit}"

    axis.set_yscale("log", base=2)
    axis.yaxis.set_major_formatter(FuncFormatter(text))
    axis.set_ylabel(label)


if __name__ == "__main__":
    main()
