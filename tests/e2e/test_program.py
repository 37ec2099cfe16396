"""Providers of another program: its rows are like ours, whatever it does."""

import csv
import fcntl
import json
import os
import select
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "numpy_program.py"


@pytest.fixture(autouse=True)
def no_bytecode(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")


def sweep(flashbench, *arguments, expect=0, **config):
    """The rows of a sweep with the program, by provider."""
    process = flashbench("sweep", "--config", flashbench.config(**config), "--program", PROGRAM,
                         "--out", "out", "--no-ceilings", "--quiet", *arguments, expect=expect)
    document = json.loads((flashbench.folder / "out/tiny.json").read_text())
    rows = {}
    for row in document["results"]:
        rows.setdefault(row["provider"], []).append(row)
    return rows, document, process


def test_rows_are_verified_and_timed(flashbench):
    rows, document, _ = sweep(flashbench)
    assert set(rows) == {"exact", "without_logsumexp"}
    for row in rows["exact"]:
        assert row["status"] == "ok", row["reason"]
        assert row["kernel"] == "numpy"
        assert row["performance"]["median_ms"] == pytest.approx(1)
        assert row["performance"]["share_of_ceiling"] is not None
        assert row["memory"] is None  # nobody counted it
        expected = ["o", "logsumexp"] if row["case"]["pass"] == "forward" else ["dq", "dk", "dv"]
        assert [tensor["tensor"] for tensor in row["correctness"]["tensors"]] == expected
    assert document["devices"][0]["program"] == str(PROGRAM)
    assert document["devices"][0]["numpy"]


def test_what_a_provider_plans_is_a_column(flashbench):
    case = {"q_len": 1, "kv_len": 50, "q_heads": 2, "head_dim": 16}
    rows, _, _ = sweep(flashbench, "--providers", "exact",
                       cases=[case, {"lengths": {"batch_spec": "q1s9_q1s7"}, "q_heads": 2, "head_dim": 16}])
    assert [row.get("plan_s") for row in rows["exact"]] == [None, 2e-6]
    # Nothing of ours can be launched on the program's memory.
    assert not any("round_ceilings" in row["performance"] for row in rows["exact"])
    with open(flashbench.folder / "out/tiny.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["plan_us"] for row in found] == ["", "2"]
    assert "stream_us" not in found[0]


def test_outputs_that_a_provider_does_not_give_are_not_checked(flashbench):
    rows, _, _ = sweep(flashbench, "--filter", "pass=forward")
    for row in rows["without_logsumexp"]:
        assert row["status"] == "ok"
        assert [tensor["tensor"] for tensor in row["correctness"]["tensors"]] == ["o"]
        assert 0.9 < row["correctness"]["checked_fraction"] < 1


@pytest.mark.parametrize("changes", [{"dtype": ["fp16", "bf16"]}, {"layout": "bhsd"},
                                     {"mask": ["causal_top_left", "causal_bottom_right"]},
                                     {"placement": ["strided", "offset"]}, {"scale": -0.3},
                                     {"q_heads": 4, "kv_heads": 2}, {"head_dim_v": [8, 40]},
                                     {"window_left": [0, 7], "window_right": 3},
                                     {"distribution": ["one_hot", "late_maximum"]}], ids=str)
def test_every_axis_reaches_the_program(flashbench, changes):
    case = {"pass": ["forward", "backward"], "seq": 33, "q_heads": 2, "head_dim": 16, **changes}
    rows, _, _ = sweep(flashbench, "--providers", "exact", cases=[case])
    assert {row["status"] for row in rows["exact"]} == {"ok"}


def test_an_axis_that_a_provider_does_not_name_is_unsupported(flashbench):
    case = {"seq": 33, "q_heads": 2, "head_dim": 16, "window_left": 7}
    rows, _, _ = sweep(flashbench, "--providers", "exact,without_logsumexp", cases=[case])
    assert [row["status"] for row in rows["exact"]] == ["ok"]
    assert [(row["status"], row["reason"]) for row in rows["without_logsumexp"]] == [
        ("unsupported", "it does not support window_left")]


@pytest.mark.parametrize("lengths", [{"batch_spec": "q3_q5s9"}, {"list": [[0, 4], [7, 12], [5, 0], [20, 20]]}], ids=str)
def test_requests_of_different_lengths_reach_the_program(flashbench, lengths):
    case = {"pass": ["forward", "backward"], "lengths": lengths, "q_heads": 4, "kv_heads": 2, "head_dim": 16,
            "layout": ["ragged", "bshd", "bhsd"], "mask": ["none", "causal_bottom_right"]}
    rows, _, _ = sweep(flashbench, "--providers", "exact,without_logsumexp", cases=[case, {**case, "window_left": 3}])
    assert {row["status"] for row in rows["exact"]} == {"ok"}
    assert {row["plan_s"] for row in rows["exact"]} == {2e-6}
    assert {(row["status"], row["reason"]) for row in rows["without_logsumexp"]} == {
        ("unsupported", "it does not support lengths"),
        ("unsupported", "it does not support window_left and lengths")}


@pytest.mark.parametrize("requests", [{"seq": 40, "batch": 3},
                                      {"lengths": {"list": [[0, 4], [7, 32], [5, 0], [20, 20]]},
                                       "layout": ["ragged", "bshd"]}], ids=str)
def test_pages_reach_the_program(flashbench, requests):
    case = {**requests, "q_heads": 4, "kv_heads": 2, "head_dim": 16, "mask": ["none", "causal_bottom_right"],
            "page_size": [1, 16], "kv_layout": ["paged_nhd", "paged_hnd"], "page_order": ["shuffled", "reversed"]}
    rows, _, _ = sweep(flashbench, "--providers", "exact,without_logsumexp",
                       cases=[case, {**case, "shared_prefix": 16, "window_left": 5, "placement": "strided"}])
    assert {row["status"] for row in rows["exact"]} == {"ok"}
    assert {row["status"] for row in rows["without_logsumexp"]} == {"unsupported"}


def test_an_axis_that_the_program_does_not_know_is_unsupported():
    request = {"do": "prepare", "provider": "exact", "problem": {"pass": "forward", "sink": 4}}
    process = subprocess.run([PROGRAM, "serve"], input=json.dumps(request), text=True,
                             capture_output=True, check=True)
    assert json.loads(process.stdout)["error"] == {"kind": "unsupported",
                                                   "message": "it does not know sink"}


@pytest.mark.parametrize("provider, status, reason, code", [
    ("wrong", "failed", "is off by", 3),
    ("stale", "failed", "do not follow its inputs", 3),
    ("works_on", "failed", "after its stream was done", 3),
    ("changes_inputs", "failed", "it changed its inputs", 3),
    ("refuses", "unsupported", "it does not like this problem", 0),
    ("raises", "error", "something broke", 4),
    ("no_memory", "out_of_memory", "there is none left", 4),
    ("loses_device", "crashed", "an illegal address was read", 4),
    ("dies", "crashed", "was killed by signal 11", 4),
    ("keeps", "crashed", "it is not done with it", 4),
    ("takes_forever", "error", 'wrong answer to "run": expected "seconds" from 1e-12 to 1e+09, found 1e+300', 4),
    ("takes_nothing", "error", 'expected "seconds" from 1e-12 to 1e+09, found 0', 4),
    ("needs_less_than_nothing", "error", 'expected "workspace_bytes" from 0 to', 4),
    ("runs_nothing", "error", 'gave a wrong answer to "run": /kernel: missing', 4),
    ("counts_nothing", "error", 'gave a wrong answer to "poisoned_elements": /count: missing', 4),
    ("counts_words", "error", 'wrong answer to "poisoned_elements": /count: expected an integer, found "none"', 4),
])
def test_what_goes_wrong_is_the_providers_row(flashbench, provider, status, reason, code):
    rows, _, _ = sweep(flashbench, "--providers", f"exact,{provider}", "--filter", "seq=33",
                       expect=code)
    for row in rows[provider]:
        assert row["status"] == status
        assert reason in row["reason"]
        assert row["performance"] is None
    assert {row["status"] for row in rows["exact"]} == {"ok"}


def test_repro_command_repeats_a_row(flashbench):
    _, document, _ = sweep(flashbench, "--filter", "pass=backward,seq=33")
    words = document["results"][0]["repro"].split()
    assert words[:4] == ["flashbench", "run", "--program", str(PROGRAM)]
    flashbench(*words[1:], "--device", "cpu", "--no-time", "--json", "again.json", "--quiet")
    again = json.loads((flashbench.folder / "again.json").read_text())["results"]
    assert [row["key"] for row in again] == [document["results"][0]["key"]]


def test_a_sweep_of_a_program_has_a_folder_of_its_own(flashbench):
    flashbench("sweep", "--config", flashbench.config(), "--program", PROGRAM, "--quiet")
    assert (flashbench.folder / "results/tiny/numpy_program/tiny.csv").exists()


def test_a_sweep_with_a_program_is_resumed(flashbench):
    sweep(flashbench, "--providers", "exact,dies", expect=4)
    _, document, _ = sweep(flashbench, "--providers", "exact,dies", "--resume", expect=4)
    assert document["meta"]["resumed"]


@pytest.mark.parametrize("program, said", [
    ("missing.py", "missing.py: cannot start it: No such file or directory"),
    ("/bin/false", "/bin/false: it ended with exit code 1"),
])
def test_a_program_that_does_not_start(flashbench, program, said):
    process = flashbench("verify", "--config", flashbench.config(), "--program", program, expect=2)
    assert said in process.stderr


def test_a_program_that_does_not_know_the_protocol(flashbench):
    program = flashbench.folder / "program.sh"
    program.write_text("#!/bin/sh\nread line\necho '{\"junk\": 1}'\nread line\n")
    program.chmod(0o755)
    process = flashbench("verify", "--config", flashbench.config(), "--program", program, expect=4)
    assert f"{program} gave a wrong answer to \"open\": expected \"providers\"" in process.stderr
    assert "json.exception" not in process.stderr


def test_an_unknown_provider_of_a_program(flashbench):
    process = flashbench("verify", "--config", flashbench.config(), "--program", PROGRAM,
                         "--providers", "naive", expect=2)
    assert "expected one of exact, without_logsumexp" in process.stderr


def test_report_puts_rows_beside_each_other(flashbench, tmp_path):
    flashbench("sweep", "--config", flashbench.config(), "--out", "own", "--quiet")
    sweep(flashbench)
    files = ["own/tiny.json", "out/tiny.json"]
    table = flashbench("report", *files).stdout
    assert table.index("naive") < table.index("exact")
    rows = list(csv.DictReader(flashbench("report", *files, "--format", "csv").stdout.splitlines()))
    cases = [(row["pass"], row["q_len"]) for row in rows]
    assert [cases.index(case) for case in cases] == sorted(cases.index(case) for case in cases)
    for row in rows:
        # Times of two runs make no ratio.
        assert (row["speedup_vs_naive"] == "") == (row["provider"] not in ("naive", "tiled"))
    (tmp_path / "all.json").write_text(flashbench("report", *files, "--format", "json").stdout)
    assert flashbench("report", "all.json").stdout == table


def test_report_refuses_a_row_twice(flashbench):
    sweep(flashbench)
    process = flashbench("report", "out/tiny.json", "out/tiny.json", expect=2)
    assert "both have exact" in process.stderr


def test_report_refuses_other_devices(flashbench):
    flashbench("sweep", "--config", flashbench.config(), "--out", "own", "--threads", 1, "--quiet")
    sweep(flashbench, "--threads", "2")
    process = flashbench("report", "own/tiny.json", "out/tiny.json", expect=5)
    assert "threads" in process.stderr


def test_the_program_ends_with_the_sweep(flashbench):
    """Killed during a hundred thousand samples, at the program's first run."""
    config = flashbench.config(measure={"min_samples": 100000, "max_samples": 100000,
                                        "max_seconds": 3600})
    reading, low = os.pipe()
    writing = fcntl.fcntl(low, fcntl.F_DUPFD, 100)  # not a number that a worker uses
    os.close(low)
    process = flashbench.start("sweep", "--no-ceilings", "--config", config, "--program", PROGRAM,
                               "--providers", "exact", "--out", "out", "--quiet",
                               pass_fds=[writing], NUMPY_PROGRAM_PIPE=str(writing))
    os.close(writing)
    assert read_in_time(reading) == b"r"
    assert process.poll() is None
    process.kill()
    process.communicate()
    # The pipe ends when no process has it open: neither the worker nor the program.
    assert read_in_time(reading) == b""
    os.close(reading)


def read_in_time(pipe):
    assert select.select([pipe], [], [], 60)[0], "waited in vain"
    return os.read(pipe, 1)
