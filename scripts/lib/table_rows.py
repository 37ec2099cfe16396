"""The rows of results from which scripts/tables.py makes tables, and how a table is written."""

import functools

import pandas as pd
from lib.json_file import read_json

CASE = ["pass", "mask", "head_dim", "q_len"]  # names a case within a grid,
SIZES = ["batch", "q_heads", "kv_heads", "kv_len"]  # and with these any case of a dtype without
OPTIONAL = ["layout", "lengths", "page_size", "kv_layout", "page_order", "window_left", "window_right", "head_dim_v",
            "quantize", "kv_dtype"]


@functools.cache
def read(path):
    """The verified rows, with the sizes that name grids, and in one column the axes that few files have."""
    try:
        frame = pd.read_csv(path)
        frame = frame[frame.status == "ok"]
        variant = frame.filter(items=OPTIONAL).fillna("").astype(str).agg(" ".join, axis=1)
        return frame.assign(hidden=frame.q_heads * frame.head_dim, tokens=frame.batch * frame.q_len, variant=variant)
    except (OSError, ValueError, AttributeError) as error:
        raise ValueError(f"{path}: expected the CSV of a sweep: {error}") from None


def meets(frame, conditions):
    """Selects the rows that meet all conditions, such as q_len=512|1024,mask=none."""
    found = pd.Series(True, frame.index)
    for condition in filter(None, conditions.split(",")):
        name, _, values = condition.partition("=")
        if name not in frame.columns:
            raise ValueError(f"{condition}: no column has the name {name}")
        found &= text_of(frame[name]).isin(values.split("|"))
    return found


def text_of(column):
    """A column as text: nothing where it is empty, and integers without a point, which pandas adds beside empty cells."""
    return column.astype(object).where(column.notna(), "").astype(str).str.replace(r"\.0$", "", regex=True)


def with_text(frame, names):
    """The frame with these columns as text, empty where it lacks them."""
    missing = [name for name in names if name not in frame.columns]
    frame = frame.reindex(columns=[*frame.columns, *missing])
    return frame.assign(**{name: text_of(frame[name]) for name in names})


def mask(name):
    return "full" if name == "none" else "causal"


def length(tokens):
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |",
             "|" + "|".join(["---"] + ["---:"] * (len(header) - 1)) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def results(paths):
    """The rows of results in JSON, each with its file."""
    return [(path, row) for path in paths for row in read_json(path)["results"]]
