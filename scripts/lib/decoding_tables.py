"""The tables of scripts/tables.py about decoding."""

import pandas as pd
from lib.table_rows import OPTIONAL, length, table, with_text

DECODING = ["dtype", "mask", "batch", "q_heads", "kv_heads", "q_len", "head_dim", "head_dim_v"]


def decode(frame, arguments):
    """A row for each batch and number of keys: microseconds of each provider, and the first one's share of stream."""
    ours, *others = providers = sorted(frame.provider.unique(), key=lambda name: name != arguments.provider[0])
    rows = []
    for (batch, keys), part in frame.groupby(["batch", "kv_len"]):
        by_provider = part.set_index("provider")
        if not by_provider.index.is_unique:
            raise ValueError(f"expected one case of batch {batch} and {keys} keys, found several: choose by --filter")
        times = by_provider.median_ms * 1e3
        reached = by_provider.pct_of_stream.get(ours)
        rows.append([f"{batch} × {length(keys)}", *(f"{times[name]:.1f}" if name in times.index else ""
                                                   for name in providers),
                     f"{times[others].min() / times[ours]:.2f}", "" if pd.isna(reached) else f"{reached:.0f}%"])
    return table(["batch × keys", *(f"`{name}`" for name in providers), "fastest other over it", "of `stream`"], rows)


def cache(frame, arguments):
    """A row for each case with a K/V cache of e4m3: microseconds, and those of the same case with one of 16 bits."""
    frame = frame[frame.provider == arguments.provider[0]].fillna({"lengths": "", "page_size": 0, "kv_dtype": ""})
    rows = []
    shape = ["head_dim", "lengths", "page_size", "q_len", "batch", "kv_len"]
    for (head_dim, lengths, page_size, q_len, batch, kv_len), part in frame.groupby(shape):
        by_cache = part.set_index("kv_dtype")
        if sorted(by_cache.index) != ["", "e4m3"]:
            raise ValueError(f"expected one case of batch {batch} and {kv_len} keys for each cache")
        times = by_cache.median_ms * 1e3
        label = f"{batch} × {'up to ' if lengths else ''}{length(kv_len)}, d{head_dim}" + queries_and_pages(q_len, page_size)
        rows.append([label, f"{times['']:.1f}", f"{times['e4m3']:.1f}", f"{times[''] / times['e4m3']:.2f}",
                     f"{by_cache.pct_of_stream['e4m3']:.0f}%"])
    return table(["batch × keys", "16 bits", "e4m3", "ratio", "of `stream`"], rows)


def queries_and_pages(q_len, page_size):
    """The end of a label of decoding: nothing for one query without pages."""
    return (f", {q_len} queries" if q_len > 1 else "") + (f", pages of {int(page_size)}" if page_size else "")


def decoding(frame, arguments):
    """The rows of the provider in which pages, if there are any, have the default layout and order; `keys` are those of all requests."""
    frame = with_text(frame[frame.provider == arguments.provider[0]], OPTIONAL)
    own = frame.lengths.str.extract(r"q-(\d+)kv-", expand=False)
    frame["keys"] = own.fillna(frame.batch * frame.kv_len).astype(int)
    return frame[(frame.kv_layout == "") & (frame.page_order == "")]


def in_pages(frame, arguments):
    """The cases with pages that there are without pages, too, whose rate is `kv_bytes_per_s_without`."""
    cases = decoding(frame, arguments)
    case = [*DECODING, "kv_len", "lengths"]
    without = cases[cases.page_size == ""]
    paged = cases[cases.page_size != ""].merge(without[[*case, "kv_bytes_per_s", "median_ms"]], on=case,
                                               suffixes=("", "_without"))
    return paged.assign(share=100 * paged.kv_bytes_per_s / paged.kv_bytes_per_s_without)


def of_lengths(frame, arguments):
    """The cases with lengths of the requests' own, and their share of the rate of one length for all, if there is that case."""
    cases = decoding(frame, arguments)
    own, equal = cases[cases.lengths != ""], cases[cases.lengths == ""]
    case = [*DECODING, "page_size", "keys"]
    own = own.merge(equal[[*case, "kv_bytes_per_s"]], on=case, how="left", suffixes=("", "_equal"))
    return own.assign(share=100 * own.kv_bytes_per_s / own.kv_bytes_per_s_equal)


def requests(case):
    """What names a row of decoding."""
    if not case.lengths:
        return f"{case.batch} × {length(case.kv_len)}"
    if case["keys"] == case.batch * case.kv_len:
        return f"{case.batch} × {case.kv_len}"
    return f"{case.batch} × up to {case.kv_len}, mean {case['keys'] / case.batch:.0f}"


def pages(frame, arguments):
    """A row for each batch: microseconds without pages, and the share of that rate for each page size."""
    paged = in_pages(frame, arguments)
    if paged.empty:
        raise ValueError("expected cases with pages and without, found none in both ways")
    sizes = sorted(paged.page_size.unique(), key=int)
    rows = []
    for _, part in paged.groupby([*DECODING, "kv_len", "lengths"], sort=False):
        shares = {case.page_size: f"{case.share:.0f}%" for case in part.itertuples()}
        rows.append([requests(part.iloc[0]), f"{1e3 * part.median_ms_without.iloc[0]:.1f}",
                     *(shares.get(size, "") for size in sizes)])
    return table(["batch × keys", "without pages, µs", *(f"pages of {size}" for size in sizes)], rows)


def lengths(frame, arguments):
    """A row for each batch of requests with lengths of their own."""
    own = of_lengths(frame, arguments)
    if own.empty:
        raise ValueError("expected cases with lengths of the requests' own, found none")
    rows = []
    for _, case in own.iterrows():
        rows.append([requests(case) + queries_and_pages(case.q_len, case.page_size), f"{1e3 * case.median_ms:.1f}", f"{case.kv_bytes_per_s / 1e12:.2f}",
                     *("" if pd.isna(share) else f"{share:.0f}%" for share in (case.share, case.pct_of_stream))])
    return table(["batch × keys", "µs", "TB/s", "of equal lengths", "of `stream`"], rows)
