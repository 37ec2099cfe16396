#!/usr/bin/env python3
"""Plots result files of flashbench: time, FLOP/s, memory, traffic and roofline. Rows of one query that
were timed beside `stream` give the time to decode. Where they lie beside rows of as many queries as keys,
there is also the time to generate a token with a cache and without one. Rows of several GPUs give their
share of linear scaling.

    scripts/plot.py results/cpu/cpu.csv -o plots

Writes DIR/<plot>_<pass>_<dtype>.png and .svg, or those that --plots and --formats name, with one panel for each head_dim and mask (and for
whatever else differs but length and batch) and one line for each provider: of the lengths at which
batch times length is the same, or else the batch. Other points are not joined. Rows that did not run or
did not verify are left out, and counted on stderr. The roofline's bandwidth comes from the .json or
.json.gz beside the .csv. It needs pandas and matplotlib.
"""

import argparse
import itertools
import json
import math
import os
import sys
from collections import namedtuple
from pathlib import Path

from lib.json_file import read_json

# The interpreter for which the distribution's packages are installed.
SYSTEM_PYTHON = "/usr/bin/python3"

try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import pandas as pd
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
except ImportError as missing:
    in_environment = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    other = os.path.exists(SYSTEM_PYTHON) and not os.path.samefile(sys.executable, SYSTEM_PYTHON)
    if other and not in_environment:
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    sys.exit(f"plot.py: {sys.executable} cannot import what it needs ({missing}): install pandas and "
             "matplotlib, by `pip install pandas matplotlib` in the environment in use or by "
             "`sudo apt install python3-pandas python3-matplotlib`")

SCHEMA = 1
# The keys of a block of cases in a config: the columns of these names are the axes of a row.
CONFIG_SCHEMA = Path(__file__).resolve().parents[1] / "configs/sweep.schema.json"
TEXT_COLUMNS = ["provider", "kernel", "device", "pass", "dtype", "mask", "status", "reason",
                "verified", "layout", "distribution"]
OPTIONAL_COLUMNS = ["pct_of_peak", "stream_us", "eff_strong"]  # missing in older files
NUMBER_COLUMNS = ["schema", "batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim",
                  "median_ms", "ci_low_ms", "ci_high_ms", "tflops", "pct_of_ceiling",
                  "bytes_compulsory", "bytes_requested", "bytes_measured", "intensity",
                  "peak_bytes", "workspace_bytes", "seed"]

# Axes that a figure shows in another way than by the words above a panel.
SHOWN = {"pass", "dtype", "mask", "head_dim", "batch", "q_heads", "kv_heads", "q_len", "kv_len", "seed",
         "scale"}

# Okabe and Ito's palette, which colour-blind people can distinguish, in the order of first use.
COLOURS = ["#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKERS = ["s", "o", "^", "D", "v", "P", "X"]
CEILING = "#555555"
MASKS = {"none": "no mask", "causal_top_left": "causal, top left",
         "causal_bottom_right": "causal, bottom right"}
PLOTS = ["time", "flops", "memory", "traffic", "roofline", "scaling", "generation", "decode"]
FORMATS = ["png", "svg"]
PANELS_PER_FIGURE = 12
TITLE_INCHES = 0.38
PANEL_INCHES = (4.2, 3.2)
LEGEND_GAP_INCHES = 0.12
HOLLOW = {"markerfacecolor": "white"}

plt.rcParams.update({
    "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white",
    "font.size": 10, "axes.titlesize": 10, "axes.labelsize": 10, "legend.fontsize": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#DDDDDD", "grid.linewidth": 0.6, "axes.axisbelow": True,
    "lines.linewidth": 1.8, "lines.markersize": 5, "svg.hashsalt": "flashbench",
})


# How a figure shows FLOP/s, and the copy's bytes per second or None.
Rate = namedtuple("Rate", ["unit", "scale", "bandwidth"])


class BadFile(Exception):
    """The file is not one that this program reads."""


def main():
    arguments = parse_arguments()
    try:
        rows = pd.concat([read_csv(path) for path in arguments.csv], ignore_index=True)
        rows = rows.fillna({name: "" for name in axes_of(rows) if name not in NUMBER_COLUMNS})
        bandwidth = read_bandwidth(arguments)
        rows = name_lines(leave_out_unusable(rows))
        written = draw_all(rows, bandwidth, arguments)
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
    parser.add_argument("--plots", type=one_or_more_of(PLOTS), metavar="PLOT,...",
                        help=f"of {', '.join(PLOTS)} (default: all that the rows give)")
    parser.add_argument("--formats", type=one_or_more_of(FORMATS), default=FORMATS, metavar="FORMAT,...",
                        help=f"of {', '.join(FORMATS)} (default: both)")
    return parser.parse_args()


def one_or_more_of(choices):
    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in choices:
                raise argparse.ArgumentTypeError(f"expected some of {', '.join(choices)}, found '{name}'")
        return names
    return parse


# ---- reading


def read_csv(path):
    try:
        rows = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise BadFile(f"{path}: not a CSV file: {error}") from None
    missing = [name for name in NUMBER_COLUMNS + TEXT_COLUMNS if name not in rows]
    if missing:
        raise BadFile(f"{path}: not a result of flashbench: it has no column {', '.join(missing)}")
    for name in OPTIONAL_COLUMNS:
        if name not in rows:
            rows[name] = ""
    for name in NUMBER_COLUMNS + OPTIONAL_COLUMNS:
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


def axes_of(rows):
    block = json.loads(CONFIG_SCHEMA.read_text())["definitions"]["block"]["properties"]
    return [name for name in block if name in rows]


def read_bandwidth(arguments):
    """Bytes per second of the measured copy, or None."""
    if arguments.json:
        candidates = [arguments.json]
    else:
        candidates = [path.with_suffix(suffix) for path in arguments.csv for suffix in (".json", ".json.gz")]
        candidates = [path for path in candidates if path.exists()]
    for path in candidates:
        try:
            ceilings = read_json(path)["ceilings"]
            rates = [ceiling["rate"] for ceiling in ceilings if ceiling["name"] == "copy"]
        except (ValueError, KeyError, TypeError) as error:
            raise BadFile(f"{path}: not a result of flashbench: {error!r}") from None
        if rates:
            return float(rates[0])
    print("plot.py: no measured bandwidth: the roofline has no slope", file=sys.stderr)
    return None


def leave_out_unusable(rows):
    """The rows with a verified time; reports the others."""
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
    """Adds `line`, the name of the row's line, and titles for its panel."""
    same_point = ["provider", "device", *axes_of(rows)]
    rows["line"] = rows["provider"]
    if rows.duplicated(same_point).any():
        rows["line"] = rows["provider"] + " (" + rows["file"] + ")"
    rows["shape"] = ["" if q == k else f"q_len {q:g}"
                     for q, k in zip(rows["q_len"], rows["kv_len"])]
    rows["heads"] = [f"{q:g} heads" if q == kv else f"{q:g} query heads, {kv:g} K/V"
                     for q, kv in zip(rows["q_heads"], rows["kv_heads"])]
    return rows


# ---- figures


def draw_all(rows, bandwidth, arguments):
    chosen = list(figures(rows))
    if arguments.plots:
        missing = set(arguments.plots) - {page.plot for page in chosen}
        if missing:
            raise BadFile(f"{arguments.csv[0]}: no rows for a plot of {', '.join(sorted(missing))}")
        chosen = [page for page in chosen if page.plot in arguments.plots]
    arguments.out.mkdir(parents=True, exist_ok=True)
    styles = {line: style(i) for i, line in enumerate(rows["line"].unique())}
    written = []
    for page in chosen:
        figure = draw_page(page.title, page.panels, styles, page.draw, bandwidth)
        written += save(figure, arguments.out / page.file, arguments.formats)
    return written


Page = namedtuple("Page", "plot file title panels draw")  # draw draws one of the panels


def figures(rows):
    """A Page for each figure that the rows give."""
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
                yield Page(name, f"{name}_{kind}_{dtype}{suffix}", f"{title}, {kind}, {dtype}", page, draw)
        if panels := scaling_panels(group):
            title = f"Share of linear scaling, {kind}, {dtype}"
            yield Page("scaling", f"scaling_{kind}_{dtype}", title, panels, draw_scaling)
        if kind != "forward":
            continue
        for name, title, panels, draw in [
                ("generation", "Attention of a layer for the next token", generating_panels(group), draw_generation),
                ("decode", "Decoding, one query a request", decoding_panels(group), draw_decoding)]:
            if panels:
                yield Page(name, f"{name}_{dtype}", f"{title}, {dtype}", panels, draw)


def style(number):
    """Colour and marker. Pairs repeat only after all combinations."""
    turn = number // len(COLOURS)
    return COLOURS[number % len(COLOURS)], MARKERS[(number + turn) % len(MARKERS)]


def split_into_panels(rows):
    """[(title, rows)]: one panel per combination of all that differs except length and provider."""
    always = ["head_dim", "mask"]
    others = [name for name in axes_of(rows) if name not in SHOWN]
    if_different = ["heads", "shape", *others, "device"]
    keys = always + [name for name in if_different if rows[name].nunique() > 1]
    # The seed may change with the length: it separates panels only if nothing else tells rows
    # apart.
    if rows.duplicated([*keys, "line", "q_len", "kv_len", "batch"]).any():
        keys.append("seed")
    rows = rows.assign(mask=pd.Categorical(rows["mask"], list(MASKS)))
    panels = []
    for values, panel in rows.groupby(keys, sort=True, observed=True):
        words = dict(zip(keys, values))
        title = f"head_dim {words.pop('head_dim'):g}, {MASKS[words.pop('mask')]}"
        rest = [described(name, value) for name, value in words.items() if value != ""]
        panels.append((title + "\n" + ", ".join(rest) if rest else title,
                       mark_series(panel.sort_values(["kv_len", "batch"]))))
    return panels


def generating_panels(rows):
    """[(title, rows)] of what generates text with a cache (`cached`: one query) and without one (as many
    queries as keys), wherever both are there at two lengths."""
    rows = rows[(rows["kv_len"] > 1) & (rows["q_len"].eq(1) | rows["q_len"].eq(rows["kv_len"]))]
    rows = rows.assign(cached=rows["q_len"] == 1, in_series=True)
    rows = rows.sort_values(["kv_heads", "kv_len"], ascending=[False, True])
    panels = []
    for (head_dim, heads, batch, _), panel in rows.groupby(["head_dim", "heads", "batch", "device"], sort=False):
        if all(panel[panel["cached"] == cached]["kv_len"].nunique() > 1 for cached in (True, False)):
            panels.append((f"head_dim {head_dim:g}, {heads}" + (f", batch {batch:g}" if batch > 1 else ""), panel))
    return panels


def decoding_panels(rows):
    """[(title, rows)] of requests of one query, wherever there are two lengths."""
    rows = rows[rows["q_len"].eq(1) & rows["stream_us"].notna()]
    others = [name for name in ["mask", *axes_of(rows)] if name not in SHOWN - {"mask"} and rows[name].nunique() > 1]
    rows = rows.assign(in_series=True).sort_values("kv_len")
    panels = []
    for (head_dim, heads, batch, _, *rest), panel in rows.groupby(["head_dim", "heads", "batch", "device", *others]):
        if panel["kv_len"].nunique() > 1:
            words = [described(name, value) for name, value in zip(others, rest) if value != ""]
            panels.append((", ".join([f"batch {batch:g}, {heads}, head_dim {head_dim:g}", *words]), panel))
    return panels


def scaling_panels(rows):
    """[(title, rows)] of what several GPUs share, wherever there are two lengths."""
    rows = rows[rows["eff_strong"].notna()].assign(in_series=True).sort_values("kv_len")
    panels = []
    for (head_dim, mask, heads, _), panel in rows.groupby(["head_dim", "mask", "heads", "device"], sort=False):
        for gpus, shared in panel.groupby("gpus"):
            if shared["kv_len"].nunique() > 1:
                panels.append((f"{gpus} GPUs, {heads}, head_dim {head_dim:g}, {MASKS[mask]}", shared))
    return panels


def described(name, value):
    if isinstance(value, str):
        return value if value[0].isalpha() or name in ("heads", "shape", "device") else f"{name} {value}"
    return f"{name} {value:g}"


def mark_series(panel):
    """Adds `in_series`: the largest set of points that differ only in length, at one number of tokens
    or else at one batch. Only those are joined by a line."""
    points = panel.drop_duplicates(["batch", "kv_len"])
    tokens = points["batch"] * points["kv_len"]
    groups = [(count, 1, value) for value, count in tokens.value_counts().items()]
    groups += [(count, 0, value) for value, count in points["batch"].value_counts().items()]
    _, by_tokens, value = max(groups)
    same = panel["batch"] * panel["kv_len"] if by_tokens else panel["batch"]
    return panel.assign(in_series=same == value)


def draw_page(title, panels, styles, draw, bandwidth):
    fastest = max(panel["tflops"].max() for _, panel in panels)
    rate = Rate("TFLOP/s", 1, bandwidth) if fastest >= 10 else Rate("GFLOP/s", 1000, bandwidth)
    columns = columns_for(panels)
    lines = math.ceil(len(panels) / columns)
    share = "row" if draw is draw_roofline else True
    figure, axes = plt.subplots(lines, columns, squeeze=False, sharey=share)
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
        axes[0, 0].set_ylim(bottom=0)  # all panels share it, so that it is set after all are drawn
    devices = {device for _, panel in panels for device in panel["device"]}
    add_header(figure, axes, title, devices.pop() if len(devices) == 1 else "")
    place_lengths(figure, axes)
    return figure


def add_legend(figure, handles, width):
    """The legend in as many columns as fit the width, and its height; both in inches."""
    for columns in range(max(len(handles), 1), 0, -1):
        legend = figure.legend(handles.values(), handles.keys(), ncols=columns, loc="upper left",
                               borderaxespad=0, frameon=False)
        size = legend.get_window_extent(figure.canvas.get_renderer())
        if columns == 1 or size.width / figure.dpi < width:
            break
        legend.remove()
    legend.set_in_layout(False)
    return legend, size.height / figure.dpi


def add_header(figure, axes, title, device):
    """Adds the title, and below it the legend in as few lines as possible; sizes the figure."""
    handles = {label: handle for axis in axes.flat
               for handle, label in zip(*axis.get_legend_handles_labels())}
    width = 0.8 + PANEL_INCHES[0] * max(axes.shape[1], 1.4)
    body = PANEL_INCHES[1] * axes.shape[0]
    figure.set_size_inches(width, body)
    legend, legend_height = add_legend(figure, handles, width - 0.2)
    header = TITLE_INCHES + legend_height + LEGEND_GAP_INCHES
    height = header + body
    figure.set_size_inches(width, height)
    legend.set_bbox_to_anchor((0.1 / width, 1 - TITLE_INCHES / height))
    figure.set_layout_engine("constrained", rect=(0, 0, 1, 1 - header / height))

    top = 1 - 0.1 / height
    figure.suptitle(title, x=0.1 / width, y=top, ha="left", va="top", fontsize=13,
                    fontweight="bold")
    figure.text(1 - 0.1 / width, top, device, ha="right", va="top", color=CEILING)


# The positions of a length beside its point, and its alignment there.
PLACES = [((4, -4), "left", "top"), ((4, 4), "left", "bottom"), ((-4, -4), "right", "top"),
          ((-4, 4), "right", "bottom"), ((0, -7), "center", "top"), ((0, 7), "center", "bottom")]


def place_lengths(figure, axes):
    """Writes the lengths that draw_roofline requested, each where it covers no other and no point;
    leaves out those without such a place."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    for axis in axes.flat:
        wishes = getattr(axis, "lengths", [])
        points = [axis.transData.transform(point) for line in axis.lines
                  if line.get_marker() not in ("None", None, "") for point in line.get_xydata()]
        taken = []
        for text, point, colour in wishes:
            for offset, across, up in PLACES:
                label = axis.annotate(text, point, xytext=offset, textcoords="offset points",
                                      color=colour, fontsize=8, ha=across, va=up)
                label.set_in_layout(False)
                label.set_path_effects([withStroke(linewidth=2, foreground="white")])
                box = label.get_window_extent(renderer).expanded(1.05, 1.1)
                inside = axis.bbox.x0 <= box.x0 and box.x1 <= axis.bbox.x1 and axis.bbox.y0 <= box.y0
                if inside and box.count_overlaps(taken) == 0 and not any(box.contains(*at) for at in points):
                    taken.append(box)
                    break
                label.remove()


def columns_for(panels):
    """The number of columns: one per mask, so that a row of panels has one head_dim."""
    masks = panels[0][1]["mask"].nunique() if len(panels) == 1 else len(
        {panel["mask"].iloc[0] for _, panel in panels})
    return masks if masks > 1 and len(panels) % masks == 0 else min(len(panels), 3)


def save(figure, path, formats):
    options = {"png": {"dpi": 150}, "svg": {"metadata": {"Date": None}}}
    paths = [path.with_suffix("." + name) for name in formats]
    for name, target in zip(formats, paths):
        figure.savefig(target, **options[name])
    plt.close(figure)
    return paths


# ---- panels


def draw_line(axis, rows, values, look, label, **more):
    """Draws the points of the series, joined, and the other points."""
    colour, marker = look
    there = rows.assign(value=values)[values.notna()]
    joined, others = there[there["in_series"]], there[~there["in_series"]]
    axis.plot(joined["kv_len"], joined["value"], color=colour, marker=marker, label=label, **more)
    if len(others):
        axis.plot(others["kv_len"], others["value"], color=colour, marker=marker,
                  **{**more, "linestyle": ""})


def explain(axis, label, **look):
    """Adds an entry to the legend that is no line of the panel."""
    axis.add_line(Line2D([], [], label=label, **{"color": CEILING, **look}))


def explain_others(axis, panel):
    if not panel["in_series"].all():
        explain(axis, "not joined: of another batch", marker="o", linestyle="")


def draw_time(axis, panel, styles, _):
    for line, rows in panel.groupby("line", sort=False):
        draw_line(axis, rows, rows["median_ms"], styles[line], line)
        joined = rows[rows["in_series"]]
        axis.fill_between(joined["kv_len"], joined["ci_low_ms"], joined["ci_high_ms"],
                          color=styles[line][0], alpha=0.25, linewidth=0)
    explain_others(axis, panel)
    time_axis(axis)
    length_axis(axis, panel)


def draw_generation(axis, panel, styles, _):
    for line, rows in panel.groupby("line", sort=False):
        cached = rows[rows["cached"]]
        draw_line(axis, cached, cached["median_ms"], styles[line], line)
        recomputed = rows[~rows["cached"]]
        draw_line(axis, recomputed, recomputed["median_ms"], styles[line], None, linestyle=":", **HOLLOW)
    explain(axis, "with the cache of K and V", linestyle="-")
    explain(axis, "computing all tokens again", linestyle=":", marker="o", **HOLLOW)
    time_axis(axis)
    length_axis(axis, panel)
    axis.set_xlabel("tokens so far")


def draw_decoding(axis, panel, styles, _):
    for line, rows in panel.groupby("line", sort=False):
        draw_line(axis, rows, rows["median_ms"] * 1000, styles[line], line)
    stream = panel.groupby("kv_len")["stream_us"].median()
    axis.plot(stream.index, stream, color=CEILING, linestyle="--", linewidth=1.2,
              label="stream: the same bytes, nothing computed")
    time_axis(axis)
    axis.set_ylabel("median time (us)")
    length_axis(axis, panel)
    axis.set_xlabel("keys of a request")


def draw_scaling(axis, panel, styles, _):
    for line, rows in panel.groupby("line", sort=False):
        draw_line(axis, rows, rows["eff_strong"] * 100, styles[line], line)
    axis.axhline(100, color=CEILING, linestyle="--", linewidth=1.2, label="linear")
    axis.set_ylabel("% of linear scaling")
    length_axis(axis, panel)


def draw_flops(axis, panel, styles, rate):
    for line, rows in panel.groupby("line", sort=False):
        draw_line(axis, rows, rows["tflops"] * rate.scale, styles[line], line)
    for ceiling, name, dashes in ceilings(panel):
        axis.axhline(ceiling * rate.scale, color=CEILING, linestyle=dashes, linewidth=1.2,
                     label=name)
    explain_others(axis, panel)
    axis.set_ylabel(rate.unit)
    length_axis(axis, panel)


def draw_memory(axis, panel, styles, _):
    for line, rows in panel.groupby("line", sort=False):
        draw_line(axis, rows, rows["peak_bytes"], styles[line], line)
        workspace = rows["workspace_bytes"].where(rows["workspace_bytes"] > 0)
        draw_line(axis, rows, workspace, styles[line], None, linestyle=":", **HOLLOW)
    explain(axis, "all tensors and workspace", linestyle="-")
    explain(axis, "workspace alone", linestyle=":", marker="o", **HOLLOW)
    explain_others(axis, panel)
    bytes_axis(axis, "peak bytes allocated")
    length_axis(axis, panel)


def draw_traffic(axis, panel, styles, _):
    requested, measured = panel["bytes_requested"].notna(), panel["bytes_measured"].notna()
    for line, rows in panel[requested | measured].groupby("line", sort=False):
        draw_line(axis, rows, rows["bytes_requested"], styles[line], line)
        draw_line(axis, rows, rows["bytes_measured"], styles[line],
                  None if rows["bytes_requested"].notna().any() else line, linestyle=":", **HOLLOW)
    least = panel.drop_duplicates(["kv_len", "batch"])
    draw_line(axis, least, least["bytes_compulsory"], (CEILING, "."), "compulsory", linestyle="--",
              linewidth=1.2)
    if requested.any():
        explain(axis, "requested by its loops", linestyle="-")
    if measured.any():
        explain(axis, "measured", linestyle=":", marker="o", **HOLLOW)
    explain_others(axis, panel)
    bytes_axis(axis, "bytes moved")
    length_axis(axis, panel)


def draw_roofline(axis, panel, styles, rate):
    points = panel[panel["intensity"].notna()]
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.lengths = []
    for line, rows in points.groupby("line", sort=False):
        colour, marker = styles[line]
        rows = rows[rows["in_series"]]
        axis.plot(rows["intensity"], rows["tflops"] * rate.scale, color=colour, marker=marker,
                  linewidth=0.8, label=line)
        for row in sorted({0, len(rows) - 1}) if len(rows) else []:
            axis.lengths.append((length_text(rows["kv_len"].iloc[row]),
                                 (rows["intensity"].iloc[row], rows["tflops"].iloc[row] * rate.scale),
                                 colour))
    draw_roof(axis, points, ceilings(panel), rate)
    axis.margins(y=0.12)  # room for the lengths written below the points
    for part in [axis.xaxis, axis.yaxis]:
        part.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_xlabel(f"FLOP per byte, {kind_of_bytes(points)}")
    axis.set_ylabel(rate.unit)


def kind_of_bytes(points):
    """The bytes behind the intensities: measured ones if there are any."""
    measured = points["bytes_measured"].notna()
    if measured.all() and len(points):
        return "measured"
    if not measured.any():
        return "requested"
    others = ", ".join(points[~measured]["line"].unique())
    return f"measured ({others}: requested)"


def draw_roof(axis, points, roofs, rate):
    """Draws the ceilings, and the measured copy bandwidth up to the highest ceiling."""
    if not roofs or not len(points):
        return
    low, high = points["intensity"].min() / 1.5, points["intensity"].max() * 1.5
    highest = max(ceiling for ceiling, _, _ in roofs)
    knee = highest * 1e12 / rate.bandwidth if rate.bandwidth else low
    for ceiling, name, dashes in roofs:
        begin = knee * ceiling / highest
        axis.plot([begin, max(high, knee * 2)], [ceiling * rate.scale] * 2, color=CEILING,
                  linestyle=dashes, linewidth=1.2, label=name)
    if rate.bandwidth:
        start = min(points["tflops"].min() / highest, 0.5)
        top = highest * rate.scale
        axis.plot([start * knee, knee], [start * top, top], color=CEILING, linewidth=1.2,
                  label="measured copy bandwidth")


# ---- axes


def ceilings(panel):
    """[(TFLOP/s, name, dashes)]: the median ceilings that the panel's shares refer to."""
    found = []
    for column, name, dashes in [("pct_of_ceiling", "GEMM in the same rounds", "--"),
                                 ("pct_of_peak", "pipe's peak at the measured clock", "-.")]:
        rates = (panel["tflops"] / (panel[column] / 100)).dropna()
        if len(rates):
            found.append((rates.median(), name, dashes))
    return found


def length_text(length):
    return f"{length / 1024:g}k" if length >= 1024 and length % 1024 == 0 else f"{length:g}"


def length_axis(axis, panel):
    lengths = sorted(panel["kv_len"].unique())
    span = math.log2(lengths[-1] / lengths[0])
    in_series = set(panel[panel["in_series"]]["kv_len"])
    ticks = []
    for length in sorted(lengths, key=lambda length: (length not in in_series, -length)):
        if all(abs(math.log2(tick / length)) >= span / 9 for tick in ticks):  # has room beside them
            ticks.append(length)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: length_text(value)))
    axis.set_xlabel("sequence length" if (panel["shape"] == "").all() else "K/V length")


def time_axis(axis):
    axis.set_yscale("log")
    axis.set_ylabel("median time (ms)")
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def bytes_axis(axis, label):
    def text(value, _):
        for unit in ["B", "KiB", "MiB", "GiB"]:
            if value < 1024:
                return f"{value:g} {unit}"
            value /= 1024
        return f"{value:g} TiB"

    axis.set_yscale("log", base=2)
    axis.yaxis.set_major_formatter(FuncFormatter(text))
    axis.set_ylabel(label)


if __name__ == "__main__":
    main()
