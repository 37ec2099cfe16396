"""scripts/tables.py on rows with known tables."""

import csv
import json
import subprocess

import pytest
from conftest import REPOSITORY
from tables import make, read

ROW = {"status": "ok", "dtype": "bf16", "pass": "forward", "mask": "none", "head_dim": 64, "q_heads": 32,
       "kv_heads": 32, "batch": 4, "q_len": 4096, "kv_len": 4096, "tflops": 200, "tflops_convention": 200,
       "pct_of_ceiling": 25, "bytes_compulsory": 2**28, "bytes_requested": 2**30, "bytes_measured": 2**29,
       "peak_bytes": 3 * 2**28, "workspace_bytes": 2**29}


def row(provider, median_ms, **changes):
    return {**ROW, "provider": provider, "median_ms": median_ms, "l2_bytes": 2**30, "tensor_ops_per_flop": 1.0,
            **changes}


def write(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


# In this process: pandas takes a second to import.
def made(table, *paths_and_options):
    read.cache_clear()  # of other files with the same path
    return make([table, *map(str, paths_and_options)])


@pytest.fixture
def tables(tmp_path):
    def run(table, *files, options=(), fails=False):
        paths = [write(tmp_path / f"{number}.csv", rows) for number, rows in enumerate(files)]
        if not fails:
            return made(table, *paths, *options).splitlines()[2:]
        with pytest.raises(ValueError) as problem:
            made(table, *paths, *options)
        return str(problem.value)

    return run


def test_the_command_prints_a_table_or_a_sentence(tmp_path):
    def run(*words):
        return subprocess.run([REPOSITORY / "scripts/tables.py", *words], capture_output=True, text=True)

    path = write(tmp_path / "rows.csv", [row("tiled", 1.0)])
    column = ["column", path, "--column", "median_ms"]
    process = run(*column)
    assert (process.returncode, process.stdout) == (0, made(*column) + "\n"), process.stderr
    process = run("speed", tmp_path / "none.csv")
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr.startswith("tables.py: ") and "Traceback" not in process.stderr


def test_ladder_ends_with_the_ceiling_of_the_same_rounds(tables):
    rows = [row("naive", 2.0), row("cudnn", 0.5, tflops=800, pct_of_ceiling=100, bytes_measured="", bytes_requested="",
                                   peak_bytes=2**28, workspace_bytes=0),
            row("naive", 9.0, q_len=8192, kv_len=8192, batch=2), row("naive", 9.0, mask="causal_bottom_right")]
    assert tables("ladder", rows, options=["--filter", "q_len=4096"]) == [
        "| naive | 2.000 | 200 | 512 | 768 |",
        "| cudnn | 0.500 | 800 |  | 256 |",
        "| ceiling | 0.500 | 800 | 256 | 256 |",
    ]
    assert "choose one by --filter q_len=N" in tables("ladder", rows, fails=True)


@pytest.mark.parametrize("speedups, cell", [
    ([1.1, 1.2, 1.3], "all"), ([0.9, 1.0, 0.8], "none"), ([0.9, 1.2, 1.3], "from 512"), ([1.2, 1.3, 0.9], "up to 512"),
    ([1.1, 0.9, 1.2], "256, 1k"),
])
def test_crossover_says_where_tiled_is_faster(tables, speedups, cell):
    rows = [row("tiled", 1.0, batch=16, q_len=n, kv_len=n, speedup_vs_naive=x)
            for n, x in zip([256, 512, 1024], speedups)]
    assert tables("crossover", rows) == [f"| forward full | {cell} |"]


def test_crossover_wants_tiled_faster_in_every_file(tables):
    short = [row("tiled", 1.0, batch=16, q_len=n, kv_len=n, speedup_vs_naive=1.5) for n in [256, 512]]
    grid = [row("tiled", 1.0, batch=32, q_len=512, kv_len=512, speedup_vs_naive=0.9)]
    other = [row("tiled", 1.0, batch=3, q_len=256, kv_len=256, speedup_vs_naive=0.5)]
    assert tables("crossover", short, grid, other) == ["| forward full | up to 256 |"]


def test_rivals_times_are_over_ours(tables):
    rows = [row("tiled", 1.0), row("cudnn", 2.0), row("plugin:torch_flash", 4.0),
            row("tiled", 1.0, mask="causal_bottom_right"), row("cudnn", 0.5, mask="causal_bottom_right"),
            row("cudnn", 7.0, q_len=512, kv_len=512, batch=32)]
    assert tables("rivals", rows)[0] == "| `tiled` forward | 1.00 (0.50 to 2.00) | 4.00 (4.00 to 4.00) |"
    assert tables("rival", rows, options=["--rival", "cudnn"]) == ["| d64 | 2.00 | 0.50 |"]
    assert "expected rows of fa4" in tables("rival", rows, options=["--rival", "fa4"], fails=True)


def test_rivals_of_any_case(tables):
    rows = [row("tiled", 1.0), row("plugin:fa3", 3.0), row("tiled", 2.0, batch=3, kv_heads=8),
            row("plugin:fa3", 1.5, batch=3, kv_heads=8)]
    assert tables("rivals", rows)[0] == "| `tiled` forward | 3.00 (3.00 to 3.00) |"
    assert tables("rivals", rows, options=["--grid", "any"])[0] == "| `tiled` forward | 1.50 (0.75 to 3.00) |"


def test_packed_requests_are_compared_with_dense_ones_that_are_no_longer(tables):
    def ragged(tflops, batch, longest, tokens, **changes):
        return row("tiled:sm90", 1.0, layout="ragged", lengths=f"{tokens}q-{tokens}kv-0123456789abcdef", batch=batch,
                   q_len=longest, kv_len=longest, tflops=tflops, **changes)

    def dense(tflops, length, **changes):
        return row("tiled:sm90", 1.0, layout="bshd", lengths="", q_len=length, kv_len=length, tflops=tflops, **changes)

    rows = [ragged(90, 4, 512, 2048), ragged(190, 8, 600, 2048), ragged(150, 8, 2100, 9000), dense(100, 512),
            dense(200, 2048), ragged(30, 4, 512, 2048, head_dim=128), dense(40, 512, head_dim=128),
            row("cudnn", 1.0, layout="bshd", lengths="", q_len=512, kv_len=512, tflops=1)]
    options = ["--grid", "any", "--provider", "tiled:sm90"]
    assert tables("packed", rows, options=options) == ["| forward d64 full | 90% | 190% | 75% |",
                                                       "| forward d128 full | 75% |  |  |"]
    alone = [ragged(90, 4, 500, 2000), dense(100, 512)]
    assert "no dense case of at most 500 tokens" in tables("packed", alone, options=options, fails=True)


def test_models_have_a_row_for_each_batch_and_length(tmp_path):
    sizes = {"mask": "none", "head_dim": 64, "q_heads": 8}
    blocks = [{"model": "A", "pass": ["forward", "backward"], **sizes, "kv_heads": 2, "batch": [1, 4], "seq": 77},
              {"model": "B", "pass": "forward", **sizes, "batch": 1, "q_len": 5, "kv_len": 9}]

    def result(provider, median_ms, **case):
        case = {"pass": "forward", **sizes, "kv_heads": 2, "batch": 1, "q_len": 77, "kv_len": 77, **case}
        return {"provider": provider, "status": "ok", "case": case, "performance": {"median_ms": median_ms}}

    b = {"q_len": 5, "kv_len": 9, "kv_heads": 8}
    rows = [result("tiled", 1.0), result("cudnn", 2.0), result("tiled", 4.0, batch=4), result("cudnn", 1.0, batch=4),
            result("tiled", 2.0, **{"pass": "backward"}), result("tiled", 0.5, **b), result("cudnn", 0.25, **b),
            result("tiled", 1.0, kv_len=78), {**result("cudnn", 9.0, **b), "status": "failed"}]
    def models(rows):
        path = tmp_path / "models.json"
        path.write_text(json.dumps({"config": {"cases": blocks}, "results": rows}))
        return made("models", path).splitlines()

    assert models(rows)[2:] == [
        "| A | 1 | 8/2 | 77 | 64 | 1.000 | 2.00 | 2.000 |  |",
        "| A | 4 | 8/2 | 77 | 64 | 4.000 | 0.25 |  |  |",
        "| B | 1 | 8 | 5/9 | 64 | 0.500 | 0.50 |  |  |"]
    backward = [result("tiled", 2.0, **{"pass": "backward"}), result("cudnn", 3.0, **{"pass": "backward"})]
    assert models(backward) == ["|  | batch | heads | length | d | backward, ms | cuDNN |", "|---|---:|---:|---:|---:|---:|---:|",
                                "| A | 1 | 8/2 | 77 | 64 | 2.000 | 1.50 |"]


def test_split_has_the_share_of_linear_scaling(tables):
    shared = {"gpus": 2, "q_len": 32768, "kv_len": 32768, "mask": "causal_bottom_right"}
    ours = [row("tiled", 5.0, eff_strong="", **shared), row("tiled:ring", 3.0, eff_strong=0.833, **shared)]
    torch = [row("torch:context_parallel_flash_alltoall", 9.0, eff_strong="", **shared),
             row("torch:context_parallel_cudnn_alltoall", 4.0, eff_strong="", **shared)]
    assert tables("split", ours, options=["--grid", "any"]) == [
        "| forward causal 32k, 32 heads, 2 GPUs | 5 | 3 (83%) |"]
    assert tables("split", ours, torch, options=["--grid", "any"]) == [
        "| forward causal 32k, 32 heads, 2 GPUs | 5 | 3 (83%) | 4 |"]
    assert "expected a row of tiled" in tables("split", torch, options=["--grid", "any"], fails=True)
    few = {**shared, "q_len": 4, "batch": 16, "kv_heads": 8}
    decoding = [row("tiled", 0.5, eff_strong="", **few), row("tiled:dcp", 0.25, eff_strong=1.0, **few)]
    assert tables("split", decoding, options=["--grid", "any"]) == [
        "| 16 × 32k, 4 queries, 32/8 heads, 2 GPUs | 0.5 | 0.25 (100%) |"]


def test_traffic_of_a_library_that_keeps_its_loops_to_itself(tables):
    rows = [row("tiled", 1.0), row("cudnn", 1.0, bytes_requested=""), row("naive", 1.0, l2_bytes="")]
    assert tables("traffic", rows) == ["| forward d64 full tiled | 2.00 / 1.00 |", "| forward d64 full cudnn | 2.00 / – |"]
    assert "no row has l2_bytes" in tables("traffic", rows[2:], fails=True)


def test_rows_that_did_not_end_well_are_in_no_table(tables):
    rows = [row("tiled", 1.0, speedup_vs_naive=2), row("tiled", 1.0, mask="causal_bottom_right", status="failed")]
    assert tables("speed", rows) == ["| forward d64 full | 200 (2.00x) |"]


def test_a_column_over_length_has_bytes_in_mib(tables):
    rows = [row("tiled", 1.0), row("naive", 2.0), row("tiled", 3.0, q_len=512, kv_len=512, batch=32)]
    assert tables("column", rows, options=["--column", "median_ms", "--digits", "1"]) == ["| forward d64 full | 3.0 | 1.0 |"]
    assert tables("column", rows, options=["--column", "peak_bytes", "--digits", "0", "--provider", "tiled", "naive"]) == [
        "| forward d64 full tiled | 768 | 768 |", "| forward d64 full naive |  | 768 |"]
    assert "expected the name of a column of numbers by --column, found 'mask'" in tables(
        "column", rows, options=["--column", "mask"], fails=True)


def test_cases_beside_the_grid(tables):
    rows = [row("tiled", 1.0), row("tiled", 2.0, q_len=1, kv_heads=8), row("cudnn", 0.5, q_len=1, kv_heads=8),
            row("tiled", 3.0, batch=3)]
    assert tables("beside", rows) == ["| forward full | 4 | 32/8 | 1/4096 | 64 | 2.000 | 0.500 |",
                                      "| forward full | 3 | 32 | 4096 | 64 | 3.000 |  |"]


def test_grouped_takes_the_fastest_rival_of_each_case(tables):
    rows = [row("tiled", 2.0, kv_heads=8), row("cudnn", 3.0, kv_heads=8), row("plugin:fa3", 2.5, kv_heads=8),
            row("tiled", 2.0, kv_heads=32), row("plugin:fa3", 1.5, kv_heads=32), row("cudnn", 1.0, kv_heads=4)]
    assert tables("grouped", rows) == ["| d64 full 4096 |  | 1.25 | 0.75 |"]
    assert tables("grouped", rows, options=["--provider", "cudnn", "--rival", "tiled"]) == ["| d64 full 4096 |  | 0.67 |  |"]


def test_behind_names_the_cases_in_which_a_rival_is_faster(tables):
    rows = [row("tiled", 2.0, kv_heads=8), row("cudnn", 3.0, kv_heads=8), row("plugin:fa3", 1.9, kv_heads=8),
            row("tiled", 2.0, kv_heads=16), row("plugin:fa3", 2.5, kv_heads=16),
            row("tiled", 2.0, kv_heads=32), row("cudnn", 1.5)]
    assert tables("behind", rows, options=["--grid", "any"]) == [
        "| forward full | 4 | 32 | 4096 | 64 | 2.000 | 0.75 |  |",
        "| forward full | 4 | 32/8 | 4096 | 64 | 2.000 | 1.50 | 0.95 |"]


@pytest.mark.parametrize("options, figure", [
    (["--column", "tflops", "--digits", "0"], "100 to 400"), (["--column", "tflops", "--as", "mean"], "200.00"),
    (["--column", "tflops", "--as", "least", "--digits", "0"], "100"), (["--column", "tflops", "--as", "most"], "400.00"),
    (["--column", "median_ms", "--filter", "mask=none", "--as", "most", "--digits", "1"], "1.0"),
    (["--column", "median_ms", "--provider", "cudnn"], "0.50 to 2.00"),
    (["--rival", "cudnn"], "0.50 to 2.00"), (["--rival", "cudnn", "--as", "wins"], "1 of 2"),
    (["--rival", "fastest"], "0.50 to 1.50"),
    (["--column", "peak_bytes", "--grid", "hidden=64,batch=3", "--digits", "0"], "768 to 768"),
])
def test_one_figure(tmp_path, options, figure):
    rows = [row("tiled", 1.0, tflops=100), row("cudnn", 2.0), row("plugin:fa3", 1.5), row("naive", 0.1),
            row("tiled", 1.0, mask="causal_bottom_right", tflops=400), row("cudnn", 0.5, mask="causal_bottom_right"),
            row("tiled", 9.0, q_heads=1, kv_heads=1, batch=3), row("tiled", 1.0, q_len=1, tflops=1000)]
    assert made("value", write(tmp_path / "rows.csv", rows), *options) == figure


@pytest.mark.parametrize("options, problem", [
    (["--column", "speed"], "found 'speed'"), ([], "found None"), (["--rival", "fa4"], "expected a figure"),
    (["--column", "tflops", "--filter", "head_dim=32"], "no verified row has hidden=2048,tokens=16384 and head_dim=32"),
    (["--column", "tflops", "--filter", "heads=32"], "heads=32: no column has the name heads"),
])
def test_a_figure_that_is_not_there(tables, options, problem):
    assert problem in tables("value", [row("tiled", 1.0)], options=options, fails=True)


def test_a_case_that_is_there_twice_is_refused(tables):
    problem = tables("column", [row("tiled", 1.0), row("tiled", 2.0)], options=["--column", "median_ms"], fails=True)
    assert "expected each case once, found again: {'provider': 'tiled', 'pass': 'forward'" in problem
    assert "no row is of cudnn" in tables(
        "column", [row("tiled", 1.0)], options=["--column", "median_ms", "--provider", "cudnn"], fails=True)


def test_counts_beside_those_of_nsight_compute(tables, tmp_path):
    def compared(case, metric, difference):
        return {"case": case, "kernel": "k", "metric": metric, "difference": difference}

    first, again = tmp_path / "first.json", tmp_path / "again.json"
    first.write_text(json.dumps([compared("a", "dram__bytes_read.sum", 0.5), compared("b", "lts__t_bytes.sum", -0.012)]))
    again.write_text(json.dumps([compared("a", "dram__bytes_read.sum", 0.001)]))
    assert tables("ncu", options=[first, again]) == ["| a | k | +0.1% |  |  |  |", "| b | k |  |  | -1.2% |  |"]
    again.write_text('{"results": []}')
    assert "again.json: expected the JSON of a sweep" in tables("ncu", options=[again], fails=True)


def test_calibration_has_the_largest_lambda_of_each_provider(tables, tmp_path):
    def result(provider, tensor, error, ratio):
        return {"provider": provider, "case": {"dtype": "fp16"},
                "correctness": {"tensors": [{"tensor": tensor, "lambda": error, "ratio": ratio}]}}

    path = tmp_path / "result.json"
    path.write_text(json.dumps({"results": [result("naive", "dq", 0.5, 2.0), result("naive", "dq", 1.5, 1.0),
                                            result("tiled", "dq", None, None), result("naive", "o", 0.1, 0.2)]}))
    assert tables("calibration", options=[path]) == ["| O | fp16 | 0.10 (0.2) |  |", "| dQ | fp16 | 1.50 (2.0) | inf (inf) |"]


def test_wall_adds_up_phases_over_rows(tables, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"results": [{"key": "a", "wall_s": {"inputs": 1, "samples": 2}},
                                            {"key": "a", "wall_s": {"samples": 3}},
                                            {"key": "b", "wall_s": {"samples": 1}}]}))
    assert tables("wall", options=[path]) == ["| samples | 6.0 | 3.00 |", "| inputs | 1.0 | 0.50 |",
                                              "| all | 7.0 | 3.50 |"]
    path.write_text(json.dumps({"results": [{"key": "a"}]}))
    assert "no row has wall_s" in tables("wall", options=[path], fails=True)
    path.write_text("[1]")
    assert "expected the JSON of a sweep" in tables("wall", options=[path], fails=True)


def test_what_is_no_result_is_a_sentence(tables):
    assert "0.csv: expected the CSV of a sweep" in tables("speed", [{"a": 1}], fails=True)


def test_generation_has_the_time_with_a_cache_and_without_one(tables):
    rows = [row("tiled", ms, batch=1, kv_heads=kv_heads, q_len=queries, kv_len=keys)
            for kv_heads in (32, 8) for keys, queries, ms in [(512, 1, 0.25), (512, 512, 8), (1024, 1, 0.5)]]
    assert tables("generation", rows, options=["--grid", "any"]) == [
        "| 32 query heads, 32 K/V, d64 | 8192 | 0.25 / 8 |  |",
        "| 32 query heads, 8 K/V, d64 | 2048 | 0.25 / 8 |  |",
    ]
    assert "expected rows of one query" in tables("generation", [row("tiled", 1.0)], options=["--grid", "any"], fails=True)


def test_decode_has_microseconds_by_batch_and_keys(tables):
    rows = [row(provider, ms, batch=batch, q_len=1, kv_len=4096, pct_of_stream=share)
            for batch in (1, 16) for provider, ms, share in [("cudnn", 0.03, 50), ("tiled", 0.02, 90.4), ("naive", 0.05, "")]]
    assert tables("decode", rows, options=["--grid", "any"]) == [
        "| 1 × 4k | 20.0 | 30.0 | 50.0 | 1.50 | 90% |",
        "| 16 × 4k | 20.0 | 30.0 | 50.0 | 1.50 | 90% |",
    ]
    twice = [*rows, row("tiled", 0.02, q_len=1, batch=1, kv_heads=8, pct_of_stream=90)]
    assert "expected one case of batch 1" in tables("decode", twice, options=["--grid", "any"], fails=True)


def test_cache_compares_the_caches_of_a_case(tables):
    def case(median_ms, kv_dtype, **changes):
        return row("tiled", median_ms, **{"q_len": 1, "kv_len": 4096, "batch": 4, "lengths": "", "page_size": "",
                                          "kv_dtype": kv_dtype, "pct_of_stream": 90.4, **changes})

    paged = {"batch": 2, "lengths": "2q-9kv-ab", "page_size": 16, "q_len": 4, "kv_len": 8192}
    rows = [case(0.03, ""), case(0.02, "e4m3"), case(0.04, "", **paged), case(0.02, "e4m3", **paged)]
    assert tables("cache", rows, options=["--grid", "any"]) == [
        "| 4 × 4k, d64 | 30.0 | 20.0 | 1.50 | 90% |",
        "| 2 × up to 8k, d64, 4 queries, pages of 16 | 40.0 | 20.0 | 2.00 | 90% |",
    ]
    assert "for each cache" in tables("cache", rows[:1], options=["--grid", "any"], fails=True)


def decoding(median_ms, **changes):
    """One query a request; the rate has K and V alone."""
    case = {"batch": 2, "q_len": 1, "kv_len": 4096, "lengths": "", "page_size": "", "kv_layout": "", "page_order": "",
            "pct_of_stream": 90.4, **changes}
    keys = int(case["lengths"].split("q-")[1].split("kv")[0]) if case["lengths"] else case["batch"] * case["kv_len"]
    return row(**{"provider": "tiled", "median_ms": median_ms, "kv_bytes_per_s": 8192 * keys / (median_ms * 1e-3), **case})


def test_windows_have_the_share_of_the_rate_without_one(tables, tmp_path):
    def case(provider, tflops, window_left="", **changes):
        return row(provider, 0.1, **{"tflops": tflops, "window_left": window_left, "window_right": "", "q_len": 8192,
                                     "kv_len": 8192, **changes})

    longer = {"q_len": 16384, "kv_len": 16384}
    rows = [case("tiled", 400), case("tiled", 300, 4095), case("tiled", 500, **longer), case("tiled", 450, 4095, **longer),
            case("cudnn", 200), case("cudnn", 170, 4095), case("tiled", 100, 4095, head_dim=96)]
    both = ["--grid", "any", "--provider", "tiled", "cudnn"]
    assert tables("windows", rows, options=both) == ["| forward d64 | `tiled` | 75% | 90% |", "| forward d64 | `cudnn` | 85% |  |"]
    assert "expected cases with a window and without" in tables("windows", rows[:1], options=both, fails=True)
    assert "found several" in tables("windows", [*rows, case("tiled", 300, 1023)], options=both, fails=True)
    path = write(tmp_path / "rows.csv", rows)
    assert made("value", path, "--grid", "any", "--share", "windows", "--digits", "0") == "75 to 90"


def test_pages_have_the_share_of_the_rate_without_them(tables, tmp_path):
    own = {"lengths": "2q-6144kv-ab"}
    rows = [decoding(0.04), decoding(0.05, page_size=16), decoding(0.08, page_size=1), decoding(0.03, **own),
            decoding(0.02, page_size=16, **own), decoding(0.01, page_size=16, page_order="linear"),
            decoding(0.01, page_size=16, kv_layout="paged_hnd"), decoding(0.01, page_size=16, provider="cudnn"),
            decoding(0.01, kv_len=512), decoding(0.01, kv_len=1024, page_size=1), decoding(0.01, batch=1, page_size=1),
            decoding(0.01, page_size=1, head_dim=128), decoding(0.01, page_size=1, q_heads=8)]
    any_grid = ["--grid", "any"]
    assert tables("pages", rows, options=any_grid) == [
        "| 2 × 4k | 40.0 | 50% | 80% |",
        "| 2 × up to 4096, mean 3072 | 30.0 |  | 150% |"]
    assert "expected cases with pages and without" in tables("pages", rows[:1], options=any_grid, fails=True)
    twice = [*rows, decoding(0.04, page_size=16)]
    assert "expected each case once" in tables("pages", twice, options=any_grid, fails=True)
    path = write(tmp_path / "rows.csv", rows)
    shares = [*any_grid, "--share", "pages", "--digits", "1"]
    assert made("value", path, *shares) == "50.0 to 150.0"
    assert made("value", path, *shares, "--filter", "page_size=|16,lengths=", "--as", "least") == "80.0"
    assert made("value", path, *shares, "--filter", "page_size=|1", "--as", "most") == "50.0"


def test_lengths_have_the_share_of_the_rate_at_one_length(tables, tmp_path):
    own = {"kv_len": 8192, "lengths": "2q-8192kv-ab"}
    rows = [decoding(0.04), decoding(0.05, **own), decoding(0.08, page_size=16, **own),
            decoding(0.05, kv_len=4096, lengths="2q-8192kv-cd"), decoding(0.05, kv_len=8192, lengths="2q-8000kv-ef"),
            decoding(0.02, batch=1, kv_len=8192), decoding(0.02, head_dim=128), decoding(0.02, provider="cudnn"),
            decoding(0.04, q_len=4, batch=3, kv_len=8000, lengths="12q-9000kv-0a", pct_of_stream="")]
    any_grid = ["--grid", "any"]
    assert tables("lengths", rows, options=any_grid) == [
        "| 2 × up to 8192, mean 4096 | 50.0 | 1.34 | 80% | 90% |",
        "| 2 × up to 8192, mean 4096, pages of 16 | 80.0 | 0.84 |  | 90% |",
        "| 2 × 4096 | 50.0 | 1.34 | 80% | 90% |",
        "| 2 × up to 8192, mean 4000 | 50.0 | 1.31 |  | 90% |",
        "| 3 × up to 8000, mean 3000, 4 queries | 40.0 | 1.84 |  |  |"]
    assert "expected cases with lengths" in tables("lengths", rows[:1], options=any_grid, fails=True)
    path = write(tmp_path / "rows.csv", rows)
    assert made("value", path, *any_grid, "--share", "lengths", "--digits", "0") == "80 to 80"
    assert "expected a figure" in tables("value", rows, options=[*any_grid, "--share", "lengths", "--filter", "page_size=16"],
                                         fails=True)


def test_outliers_has_errors_over_the_size_of_o_in_fp16_and_by_recipe(tables, tmp_path):
    def result(provider, head_dim, correctness, status="ok", distribution="outliers", **case):
        return {"status": status, "provider": provider, "correctness": correctness,
                "case": {"distribution": distribution, "head_dim": head_dim, **case}}

    def fp16(rel_rms_err):
        return {"tensors": [{"tensor": "logsumexp", "rel_rms_err": 9}, {"tensor": "o", "rel_rms_err": rel_rms_err}]}

    def rounded(rmse, rms_o):
        return {"tensors": [], "recipe_cost": {"total": {"rmse": rmse}, "rms_o": rms_o}}

    recipe = {"dtype": "bf16", "quantize": "e4m3_block"}
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"results": [
        result("emulated", 64, rounded(0.02, 0.25), **recipe),
        result("emulated", 128, rounded(0.01, 0.2), **recipe),
        result("emulated:fp22", 128, rounded(9, 1), **recipe),
        result("emulated", 128, rounded(9, 1), distribution="normal", **recipe),
        result("tiled", 128, {"tensors": []}, status="unsupported", **recipe),
        result("emulated", 128, fp16(9), dtype="e4m3"),
        result("tiled", 128, fp16(1.25e-4), dtype="fp16"), result("tiled", 64, fp16(2.5e-4), dtype="fp16")]}))
    assert tables("outliers", options=[path]) == ["| fp16, `tiled` | 0.125 | 0.250 |", "| `e4m3_block` | 50.000 | 80.000 |"]


def test_fp8_has_speed_and_error_of_bf16_and_e4m3(tables):
    def case(provider, median_ms, dtype, quantize="", **changes):
        return row(provider, median_ms, **{"dtype": dtype, "quantize": quantize, "rel_rms_err": 0.002, "rel_rmse_total": "",
                                           "rounding_us": "", "rounding_pct_of_copy": "", "pass": "forward", **changes})

    rows = [case("tiled", 3.0, "bf16"), case("tiled", 2.0, "e4m3"), case("tiled:sm90_e4m3_unpromoted", 1.5, "e4m3"),
            case("tiled", 2.5, "bf16", "e4m3_head", rel_rmse_total=0.05, rounding_us=81.2, rounding_pct_of_copy=85.4),
            case("cudnn", 2.2, "e4m3")]
    (line,) = tables("fp8", rows, options=["--grid", "any"])
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert [cell.split("(")[-1] for cell in cells[2:6:2] + cells[5:]] == ["1.50x)", "1.10x)", "1.20x)", "85%)", "0.20%", "5.0%"]
    rows = [{**one, "speedup_vs_unrounded": 1.25 if one["quantize"] else ""} for one in rows]
    assert "(1.25x)" in tables("fp8", rows, options=["--grid", "any"])[0]
    assert "bf16 rounded" in tables("fp8", rows[:3], options=["--grid", "any"], fails=True)
