"""scripts/tables.py on rows whose tables are known."""

import csv
import json
import subprocess

import pytest
from conftest import REPOSITORY

ROW = {"status": "ok", "dtype": "bf16", "pass": "forward", "mask": "none", "head_dim": 64, "q_heads": 32,
       "kv_heads": 32, "batch": 4, "q_len": 4096, "kv_len": 4096, "tflops": 200, "tflops_convention": 200,
       "pct_of_ceiling": 25, "bytes_compulsory": 2**28, "bytes_requested": 2**30, "bytes_measured": 2**29,
       "peak_bytes": 3 * 2**28, "workspace_bytes": 2**29}


def row(provider, median_ms, **changes):
    return {**ROW, "provider": provider, "median_ms": median_ms, "l2_bytes": 2**30, "tensor_ops_per_flop": 1.0,
            **changes}


@pytest.fixture
def tables(tmp_path):
    def run(table, *files, options=(), expect=0):
        paths = []
        for number, rows in enumerate(files):
            paths.append(tmp_path / f"{number}.csv")
            with open(paths[-1], "w", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)
        process = subprocess.run([REPOSITORY / "scripts/tables.py", table, *paths, *options],
                                 capture_output=True, text=True)
        assert process.returncode == expect, process.stderr
        assert "Traceback" not in process.stderr
        return process.stdout.splitlines()[2:] if expect == 0 else process.stderr

    return run


def test_ladder_ends_with_the_ceiling_of_the_same_rounds(tables):
    rows = [row("naive", 2.0), row("cudnn", 0.5, tflops=800, pct_of_ceiling=100, bytes_measured="", bytes_requested="",
                                   peak_bytes=2**28, workspace_bytes=0),
            row("naive", 9.0, q_len=8192, kv_len=8192, batch=2), row("naive", 9.0, mask="causal_bottom_right")]
    assert tables("ladder", rows, options=["--length", "4096"]) == [
        "| naive | 2.000 | 200 | 512 | 768 |",
        "| cudnn | 0.500 | 800 |  | 256 |",
        "| ceiling | 0.500 | 800 | 256 | 256 |",
    ]
    assert "choose one by --length" in tables("ladder", rows, expect=1)


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
    assert tables("rival", rows, options=["--provider", "cudnn"]) == ["| d64 | 2.00 | 0.50 |  |  |  |  |  |  |"]
    assert "expected rows of fa4" in tables("rival", rows, options=["--provider", "fa4"], expect=1)


def test_traffic_of_a_library_that_keeps_its_loops_to_itself(tables):
    rows = [row("tiled", 1.0), row("cudnn", 1.0, bytes_requested=""), row("naive", 1.0, l2_bytes="")]
    assert tables("traffic", rows) == ["| forward d64 full tiled | 2.00 / 1.00 |", "| forward d64 full cudnn | 2.00 / – |"]
    assert "no row has l2_bytes" in tables("traffic", rows[2:], expect=1)


def test_rows_that_did_not_end_well_are_in_no_table(tables):
    rows = [row("tiled", 1.0, speedup_vs_naive=2), row("tiled", 1.0, mask="causal_bottom_right", status="failed")]
    assert tables("speed", rows) == ["| forward d64 full | 200 (2.00x) |"]


def test_wall_adds_up_phases_over_rows(tables, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"results": [{"key": "a", "wall_s": {"inputs": 1, "samples": 2}},
                                            {"key": "a", "wall_s": {"samples": 3}},
                                            {"key": "b", "wall_s": {"samples": 1}}]}))
    assert tables("wall", options=[path]) == ["| samples | 6.0 | 3.00 |", "| inputs | 1.0 | 0.50 |",
                                              "| all | 7.0 | 3.50 |"]
    path.write_text(json.dumps({"results": [{"key": "a"}]}))
    assert "no row has wall_s" in tables("wall", options=[path], expect=1)
    path.write_text("[1]")
    assert "expected the JSON of a sweep" in tables("wall", options=[path], expect=1)


def test_what_is_no_result_is_a_sentence(tables):
    assert "0.csv: expected the CSV of a sweep" in tables("speed", [{"a": 1}], expect=1)
