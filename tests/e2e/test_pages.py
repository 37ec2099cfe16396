"""Paged K/V caches: gathered by NumPy from pools and tables, given and dumped; and what is refused."""

import numpy as np
import pytest
import reference
from test_numpy import (
    DTYPES,
    MASKS,
    REQUESTS,
    Shape,
    assert_requests,
    request_tensors,
    run_on_files,
    save,
    save_cu_seqlens,
    save_padded,
    save_ragged,
)

NO_PAGE = 2_147_480_000
NAMES = ["q", "k", "v"]


def table_of(page_size, order):
    """A table of the REQUESTS with garbage behind their ends, and the pages of its pool."""
    counts = [-(-keys // page_size) for _, keys in REQUESTS]
    pool = sum(counts) + 3
    pages = iter({"shuffled": np.random.default_rng(3).permutation(pool),
                  "reversed": np.arange(pool)[::-1]}[order])
    table = np.full((len(REQUESTS), max(counts) + 2), -7, np.int32)
    for row, count in zip(table, counts):
        row[:count] = [next(pages) for _ in range(count)]
    return table, pool


def save_pool(path, parts, dtype, table, pages, page_size, kv_layout):
    """Saves [1, heads, length, head_dim] of each request in pages; returns them as rounded."""
    heads, columns = parts[0].shape[1], parts[0].shape[3]
    pool = np.full((pages, page_size, heads, columns), 1e4)  # where no request is
    places = [[(row[i // page_size], i % page_size) for i in range(part.shape[2])]
              for row, part in zip(table, parts)]
    for part, rows in zip(parts, places):
        for i, place in enumerate(rows):
            pool[place] = part[0, :, i]
    rounded = save(path, pool.swapaxes(1, 2), dtype, "bshd" if kv_layout == "paged_nhd" else "bhsd")
    rounded = rounded.swapaxes(1, 2)
    return [np.array([rounded[place] for place in rows]).reshape(-1, heads, columns)
            .swapaxes(0, 1)[None] for rows in places]


def save_paged(folder, shape, dtype, page_size, order, kv_layout):
    """Saves inputs in pages and their table; returns each request's, as rounded."""
    table, pages = table_of(page_size, order)
    np.save(folder / "table.npy", table)
    drawn = request_tensors(shape, NAMES)
    tensors = [{} for _ in REQUESTS]
    for name in NAMES:
        path, parts = folder / f"{name}.npy", [x[name] for x in drawn]
        if name != "q":
            rounded = save_pool(path, parts, dtype, table, pages, page_size, kv_layout)
        elif shape.layout == "ragged":
            rounded = save_ragged(path, parts, dtype)
        else:
            rounded = save_padded(path, parts, dtype, shape.layout)
        for x, part in zip(tensors, rounded):
            x[name] = part
    return tensors


def length_options(folder, layout):
    if layout == "ragged":
        return save_cu_seqlens(folder)
    return ["--lengths", "_".join(f"q{q}s{k}" for q, k in REQUESTS)]


@pytest.mark.parametrize("page_size, order", [(1, "shuffled"), (16, "shuffled"), (48, "reversed"),
                                              (256, "reversed")])
@pytest.mark.parametrize("layout", ["ragged", "bshd", "bhsd"])
@pytest.mark.parametrize("kv_layout", ["paged_nhd", "paged_hnd"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_pools_and_tables_of_files(flashbench, tmp_path, dtype, kv_layout, layout, page_size, order):
    shape = Shape(len(REQUESTS), 4, 2, 0, 0, 40, layout, 24)
    tensors = save_paged(tmp_path, shape, dtype, page_size, order, kv_layout)
    mask = MASKS[page_size % 3]
    run_on_files(flashbench, shape, dtype, mask, NAMES, "--block-table", "table.npy", "--kv-layout",
                 kv_layout, *length_options(tmp_path, layout))
    assert_requests(tmp_path / "out", tensors, mask, shape, dtype)


def test_a_window_over_pages(flashbench, tmp_path):
    shape = Shape(len(REQUESTS), 4, 2, 0, 0, 40, "ragged")
    tensors = save_paged(tmp_path, shape, "fp32", 16, "shuffled", "paged_nhd")
    run_on_files(flashbench, shape, "fp32", "causal_bottom_right", NAMES, "--block-table",
                 "table.npy", "--window-left", 20, *save_cu_seqlens(tmp_path))
    assert_requests(tmp_path / "out", tensors, "causal_bottom_right", shape, "fp32", (20, None))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [
    ["--page-size", 16],
    ["--page-size", 1, "--kv-layout", "paged_hnd", "--page-order", "reversed"],
    ["--page-size", 48, "--page-order", "linear", "--shared-prefix", 50],
    ["--page-size", 8, "--placement", "strided", "--kv-layout", "paged_hnd"]], ids=str)
def test_dumped_pages_hold_what_was_computed_on(flashbench, tmp_path, options, dtype):
    """NumPy gathers the keys from the dumped pool; the dumped files give the same outputs."""
    spec = "_".join(f"q{q}s{k}" for q, k in REQUESTS)
    flashbench("run", "--lengths", spec, "--layout", "ragged", "--q-heads", 4, "--kv-heads", 2,
               "--head-dim", 32, "--mask", "causal_bottom_right", "--dtype", dtype, *options,
               "--device", "cpu", "--dump", "out", "--no-time", "--quiet")
    arrays = {name: np.load(tmp_path / "out" / f"{name}.npy") for name in [*NAMES, "block_table"]}
    if dtype == "bf16":
        arrays |= {name: reference.from_bf16(arrays[name]) for name in NAMES}
    page_size, table = options[1], arrays["block_table"]
    kv_layout = "paged_hnd" if "paged_hnd" in options else "paged_nhd"
    ends = np.cumsum([q for q, _ in REQUESTS])[:-1]
    tensors = []
    for q, row, (_, keys) in zip(np.split(arrays["q"], ends), table, REQUESTS):
        count = -(-keys // page_size)
        assert (row[count:] == NO_PAGE).all() and len(row) > count
        x = {"q": q.swapaxes(0, 1)[None].astype(np.float64)}
        for name in "kv":
            pages = arrays[name][row[:count]]
            if kv_layout == "paged_hnd":
                pages = pages.swapaxes(1, 2)
            rows = pages.reshape(-1, 2, 32)
            assert np.isnan(rows[keys:]).all()
            x[name] = rows[:keys].swapaxes(0, 1)[None].astype(np.float64)
        tensors.append(x)
    used = np.unique(table[table != NO_PAGE])
    unused = np.setdiff1d(np.arange(len(arrays["k"])), used)
    assert len(unused) == -(-len(used) // 4)
    assert np.isnan(arrays["k"][unused]).all() and np.isnan(arrays["v"][unused]).all()
    shape = Shape(len(REQUESTS), 4, 2, 0, 0, 32, "ragged")
    assert_requests(tmp_path / "out", tensors, "causal_bottom_right", shape, dtype)

    files = [word for name in NAMES for word in (f"--{name}", f"out/{name}.npy")]
    flashbench("run", *files, "--mask", "causal_bottom_right", "--dtype", dtype, "--kv-layout",
               kv_layout, "--block-table", "out/block_table.npy", "--cu-seqlens-q",
               "out/cu_seqlens_q.npy", "--cu-seqlens-k", "out/cu_seqlens_k.npy", "--device", "cpu",
               "--dump", "again", "--no-time", "--quiet")
    for path in sorted((tmp_path / "out").rglob("*.npy")):
        again = tmp_path / "again" / path.relative_to(tmp_path / "out")
        assert again.read_bytes() == path.read_bytes(), path.name


def test_pages_of_equal_lengths(flashbench, tmp_path):
    """Another order of the pages and a pool of another size change no bit of the outputs."""
    outputs = []
    for options in [["--page-order", "linear"], ["--page-order", "reversed"], [],
                    ["--block-table", "90:7,80,3,9,0_8,89,1,12,50"]]:
        flashbench("run", "--batch", 2, "--q-len", 3, "--kv-len", 70, "--head-dim", 16, "--q-heads",
                   2, "--page-size", 16, *options, "--device", "cpu", "--dump", "out", "--no-time",
                   "--quiet")
        outputs.append([(tmp_path / "out" / provider / "o.npy").read_bytes()
                        for provider in ["naive", "tiled"]])
    assert all(found == outputs[0] for found in outputs)


def save_decoding(folder, table, dtype=np.float32, pages=6):
    """Two requests with one query; a pool of pages of 16 rows."""
    np.save(folder / "q.npy", np.zeros((2, 1, 2, 16), dtype))
    for name in "kv":
        np.save(folder / f"{name}.npy", np.zeros((pages, 16, 2, 16), dtype))
    np.save(folder / "t.npy", table)
    return ["run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--block-table", "t.npy",
            "--device", "cpu", "--no-time", "--quiet"]


def int32(rows):
    return np.array(rows, np.int32)


@pytest.mark.parametrize("table, options, said", [
    (int32([[0, 6], [2, 3]]), ["--kv-len", 20],
     "block_table: request 0, page 1: expected a page from 0 to 5, found 6"),
    (int32([[0, 1], [-1, 3]]), ["--kv-len", 20],
     "block_table: request 1, page 0: expected a page from 0 to 5, found -1"),
    (int32([[0, 1], [NO_PAGE, 3]]), ["--kv-len", 20], "request 1, page 0"),
    (int32([[0, 1]]), ["--kv-len", 20], "expected a row for each of 2 requests, found 1"),
    (int32([[0], [1]]), ["--kv-len", 40], "request 0 has 40 keys and needs 3 pages of 16"),
    (int32([[0, 1], [2, NO_PAGE]]), ["--lengths", "q1s20_q1s17"],
     "block_table: request 1, page 1: expected a page from 0 to 5, found 2147480000"),
    (int32([0, 1]), ["--kv-len", 20], "t.npy: expected int32 of two dimensions"),
    (np.array([[0, 1], [2, 3]]), ["--kv-len", 20], "t.npy: "),  # int64
    (np.zeros((2, 2), np.float32), ["--kv-len", 20], "found float32 of shape (2, 2)"),
    (int32([[0, 1], [2, 3]]), [], "needs the lengths of the keys"),
    (int32([[0, 1], [2, 3]]), ["--kv-len", 20, "--page-size", 8],
     "k.npy: expected pages of 8 rows, as page_size says, found 16"),
    (int32([[0, 1], [2, 3]]), ["--lengths", "q1s20_q1s17_q1s3"],
     "q.npy: expected 3 requests padded to the longest"),
    (int32([[0, 1], [2, 3]]), ["--kv-len", 20, "--pass", "backward", "--do", "q.npy"],
     "a paged K/V cache is for pass forward, got backward"),
    (int32([[0, 1], [2, 3]]), ["--kv-len", 20, "--page-order", "linear"],
     "--block-table cannot be combined with --page-order"),
    (int32([[0, 1], [2, 3]]), ["--kv-len", 20, "--block-table", "5:0,1_2,3"],
     "k.npy: expected a pool of 5 pages, as block_table says, found 6"),
    (int32([[0, 1], [2, 3]]), ["--kv-len", 20, "--block-table", "0,1_2,3"], "0,1_2,3"),
], ids=lambda value: None if isinstance(value, np.ndarray) else str(value)[:40])
def test_what_does_not_fit_is_refused(flashbench, tmp_path, table, options, said):
    command = save_decoding(tmp_path, table)
    if "--block-table" in options:
        at = command.index("--block-table")
        command = command[:at] + command[at + 2:]
    status = 7 if "0,1_2,3" in options else 2  # no such file
    process = flashbench(*command, *options, expect=status)
    assert said in process.stderr
    assert process.stdout == ""


def test_v_of_another_pool_is_refused(flashbench, tmp_path):
    command = save_decoding(tmp_path, int32([[0, 1], [2, 3]]))
    np.save(tmp_path / "v.npy", np.zeros((6, 8, 2, 16), np.float32))
    process = flashbench(*command, "--kv-len", 20, expect=2)
    assert "v.npy: expected shape [6, 16, 2, 16] (paged_nhd), found [6, 8, 2, 16]" in process.stderr


def test_pages_of_files_need_a_table(flashbench, tmp_path):
    command = save_decoding(tmp_path, int32([[0]]))
    del command[command.index("--block-table"):command.index("--block-table") + 2]
    process = flashbench(*command, "--page-size", 16, expect=2)
    assert "needs block_table" in process.stderr


@pytest.mark.parametrize("options, said", [
    (["--page-size", 16, "--pass", "backward"],
     "a paged K/V cache is for pass forward, got backward"),
    (["--kv-layout", "paged_hnd"], "block_table need page_size"),
    (["--page-size", 16, "--block-table", "5:0,9", "--kv-len", 20], "expected a page from 0 to 4, found 9"),
    (["--page-size", 16, "--block-table", "{}", "--kv-len", 20],
     "--block-table: expected exactly one of the keys table, file"),
    (["--batch", 2, "--page-size", 16, "--shared-prefix", 16, "--distribution", "one_hot"],
     "one_hot gives each request keys of its own"),
], ids=str)
def test_axes_that_do_not_go_together_are_refused(flashbench, options, said):
    process = flashbench("run", "--device", "cpu", "--no-time", "--quiet", *options, expect=2)
    assert said in process.stderr


def test_a_row_is_repeated_by_its_command(flashbench, tmp_path):
    np.save(tmp_path / "t.npy", int32([[3, 1], [0, 4]]))
    flashbench("run", "--batch", 2, "--q-len", 2, "--kv-len", 20, "--page-size", 16, "--block-table",
               '{"file": "t.npy", "pages": 7}', "--device", "cpu", "--no-time", "--quiet", "--json",
               "one.json")
    import json
    rows = json.loads((tmp_path / "one.json").read_text())["results"]
    repro = rows[0]["repro"].split()
    assert "--block-table 7:3,1_0,4" in rows[0]["repro"]
    flashbench(*repro[1:], "--no-time", "--quiet", "--json", "two.json")
    again = json.loads((tmp_path / "two.json").read_text())["results"]
    assert again[0]["case"] == rows[0]["case"]
