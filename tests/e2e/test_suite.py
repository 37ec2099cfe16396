"""The built-in suites, repeated runs, and the faults that they find in a provider."""

import csv
import io
import json
import os
import re

import pytest

CPU_PROVIDERS = ["naive", "tiled"]


@pytest.fixture
def faulty(with_faults):
    """Runs the tool with only the faulty provider, and with this fault."""

    def run(fault, *arguments, **options):
        environment = {**os.environ, "FLASHBENCH_FAULT": fault}
        return with_faults(*arguments, "--providers", "plugin:faulty", "--quiet",
                           env=environment, **options)

    return run


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


# ---- the suites


def test_adversarial_passes_for_every_cpu_provider(flashbench):
    process = flashbench("verify", "--suite", "adversarial", "--device", "cpu", "--csv", "-",
                         "--quiet")
    rows = rows_of(process.stdout)
    assert len(rows) > 900
    for provider in CPU_PROVIDERS:
        own = [row for row in rows if row["provider"] == provider]
        assert len(own) == len(rows) / len(CPU_PROVIDERS)
        assert {row["status"] for row in own} == {"ok"}
        assert {row["verified"] for row in own} == {"passed"}
    assert {row["placement"] for row in rows} == {"", "strided", "offset"}


@pytest.mark.parametrize("provider, kinds", [("emulated", 3), ("emulated:fp22", 2), ("emulated:o_e4m3", 3)])
def test_adversarial_of_bytes_passes_for_the_emulation(flashbench, provider, kinds):
    process = flashbench("verify", "--suite", "adversarial", "--filter", "dtype=e4m3", "--providers",
                         provider, "--csv", "-", "--quiet")
    rows = [row for row in rows_of(process.stdout) if kinds == 3 or row["descale"] != "per_block"]
    assert len(rows) > 100 * kinds
    assert {row["descale"] for row in rows} == {"", "per_tensor", "per_block"} - ({"per_block"} if kinds == 2 else set())
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["verified"] for row in rows} <= {"passed", "coarse"}


def test_suites_have_bytes_where_a_provider_takes_them(flashbench):
    arguments = ["verify", "--suite", "random", "--seed", "7", "--count", "1", "--device", "cpu", "--csv", "-",
                 "--quiet", "--filter"]
    rows = rows_of(flashbench(*arguments, "seed=7", "--providers", "naive").stdout)
    assert [row["dtype"] for row in rows].count("e4m3") == 0
    rows = rows_of(flashbench(*arguments, "seed=7", "--providers", "emulated").stdout)
    assert [row["dtype"] for row in rows].count("e4m3") == 1
    refused = flashbench(*arguments, "dtype=e4m3", "--providers", "naive", expect=2)
    assert "no provider of this run takes dtype e4m3" in refused.stderr


def test_a_head_dim_of_v_is_in_the_row_and_its_command(flashbench):
    flashbench("verify", "--suite", "adversarial", "--providers", "tiled", "--quiet", "--filter",
               "head_dim=192,head_dim_v=128,dtype=bf16,pass=backward,distribution=normal,mask=none",
               "--json", "r.json", "--csv", "r.csv")
    row, = json.loads((flashbench.folder / "r.json").read_text())["results"]
    assert row["case"]["head_dim_v"] == 128
    assert row["key"].endswith("/d192/normal/seed1/head_dim_v128")
    assert row["repro"].endswith("--seed 1 --head-dim-v 128")
    assert [tensor["checked"] for tensor in row["correctness"]["tensors"]] == [
        2 * 4 * 33 * 192, 2 * 2 * 65 * 192, 2 * 2 * 65 * 128]  # dQ, dK, dV
    assert row["work"]["flops"] == 2 * 4 * 33 * 65 * 2 * (3 * 192 + 2 * 128)
    assert rows_of((flashbench.folder / "r.csv").read_text())[0]["head_dim_v"] == "128"
    flashbench(*row["repro"].split()[1:], "--no-time", "--quiet", "--json", "again.json")
    again, = json.loads((flashbench.folder / "again.json").read_text())["results"]
    assert again["key"] == row["key"]
    assert again["correctness"] == row["correctness"]


def test_lengths_are_in_the_row_and_its_command(flashbench):
    (flashbench.folder / "lengths.csv").write_text("q_len,kv_len\n5,9\n5,9\n0,4\n1,130\n")
    case = {"pass": ["forward", "backward"], "layout": ["ragged", "bshd"], "q_heads": 2,
            "head_dim": 16, "lengths": {"file": "lengths.csv"}}
    config = flashbench.config(cases=[case])
    flashbench("sweep", "--config", config, "--device", "cpu", "--out", "out", "--quiet", "--no-ceilings")
    result = json.loads((flashbench.folder / "out/tiny.json").read_text())
    rows = result["results"]
    assert len(rows) == 4 * len(CPU_PROVIDERS)
    for row in rows:
        assert row["status"] == "ok" and row["performance"]
        assert row["case"]["lengths"] == {"batch_spec": "2q5s9_q0s4_q1s130"}
        assert (row["case"]["batch"], row["case"]["q_len"], row["case"]["kv_len"]) == (4, 5, 130)
        assert re.search(r"/lengths11q-152kv-[0-9a-f]{16}$", row["key"])
        assert row["repro"].endswith(" --lengths 2q5s9_q0s4_q1s130")
        pairs = 5 * 9 * 2 + 130
        factor = 4 if row["case"]["pass"] == "forward" else 10
        assert row["work"]["flops"] == factor * pairs * 2 * 16
        flashbench(*row["repro"].split()[1:], "--no-time", "--quiet", "--json", "again.json")
        again, = json.loads((flashbench.folder / "again.json").read_text())["results"]
        assert again["key"] == row["key"]
        assert again["correctness"] == row["correctness"]
    table = rows_of((flashbench.folder / "out/tiny.csv").read_text())
    assert all((float(row["pct_padding"] or 0) > 60) == (row["layout"] == "bshd") for row in table)
    kept = table[0]["lengths"]
    listed = flashbench("sweep", "--config", config, "--dry-run", "--filter", f"lengths={kept}")
    assert "4 cases" in listed.stdout


def test_dry_run_lists_cases_below_their_purpose(flashbench):
    listed = flashbench("verify", "--suite", "adversarial", "--dry-run",
                        "--filter", "distribution=nan_key,pass=backward").stdout
    assert "NaN key: one row of K is NaN: the queries that see it are NaN" in listed
    cases = [line for line in listed.splitlines() if line.startswith("  ")]
    assert cases and all("backward" in case and "nan_key" in case for case in cases)
    assert flashbench("verify", "--suite", "large", "--dry-run").stdout.count("batch 17") == 3


def test_a_config_can_be_listed_too(flashbench):
    listed = flashbench("verify", "--config", flashbench.config(), "--dry-run").stdout
    assert "4 cases for naive, tiled" in listed


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "expected either --config FILE or --suite NAME"),
        (["--suite", "adversarial", "--config", "x.json"], "excludes --suite"),
        (["--suite", "adversarial", "--set", "/name=x"], "excludes --suite"),
        (["--suite", "nonsense"], "nonsense"),
        (["--suite", "adversarial", "--filter", "head_dim=7"], "adversarial: no case is left"),
        (["--suite", "adversarial", "--repeat", "0"], "--repeat"),
        (["--suite", "adversarial", "--seed", "1"], 'for the suite random only, got "adversarial"'),
        (["--suite", "random", "--count", "0"], "--count"),
        (["--config", "x.json", "--count", "3"], "--count requires --suite"),
    ],
)
def test_bad_arguments(flashbench, arguments, said):
    assert said in flashbench("verify", *arguments, expect=2).stderr


def test_random_problems_pass_and_their_seed_tells_one(flashbench):
    process = flashbench("verify", "--suite", "random", "--seed", "90", "--count", "12", "--device",
                         "cpu", "--json", "r.json", "--quiet")
    assert process.stdout.count("passed") == 12 * len(CPU_PROVIDERS)
    result = json.loads((flashbench.folder / "r.json").read_text())
    assert result["config"] == {"name": "random", "suite": "random", "seed": 90, "count": 12}
    keys = list(dict.fromkeys(row["key"] for row in result["results"]))
    assert [re.search(r"/seed(\d+)", key)[1] for key in keys] == [str(90 + i) for i in range(12)]

    flashbench("verify", "--suite", "random", "--seed", "95", "--count", "1", "--device", "cpu",
               "--json", "alone.json", "--quiet")
    alone = json.loads((flashbench.folder / "alone.json").read_text())
    assert {row["key"] for row in alone["results"]} == {keys[5]}


def test_a_wrong_output_for_a_random_problem_names_its_seed(faulty):
    process = faulty("nan", "verify", "--suite", "random", "--count", "2", expect=3)  # both in fp32
    headings = [line for line in process.stdout.splitlines() if line.startswith("forward")]
    assert [heading.split("/seed")[1] for heading in headings] == ["1", "2"]
    assert len(re.findall(r"^  failed: ", process.stdout, re.MULTILINE)) == 2


def test_a_row_of_a_suite_can_be_run_alone(flashbench):
    flashbench("verify", "--suite", "adversarial", "--providers", "tiled", "--quiet", "--filter",
               "placement=strided,dtype=bf16,distribution=one_hot,layout=bhsd", "--json", "r.json")
    result = json.loads((flashbench.folder / "r.json").read_text())
    row, = result["results"]
    assert row["case"]["placement"] == "strided"
    assert row["key"].endswith("one_hot/seed1/strided")
    assert row["repro"].endswith("--distribution one_hot --seed 1 --placement strided")
    flashbench(*row["repro"].split()[1:], "--no-time", "--quiet", "--json", "again.json")
    again, = json.loads((flashbench.folder / "again.json").read_text())["results"]
    assert again["key"] == row["key"]
    assert again["correctness"] == row["correctness"]


# ---- repeated runs


def test_repeats_agree_bit_by_bit(flashbench):
    process = flashbench("verify", "--config", flashbench.config(), "--repeat", "6", "--json",
                         "r.json", "--csv", "r.csv", "--md", "r.md", "--quiet")
    assert process.stdout.count("bitwise") == 8
    result = json.loads((flashbench.folder / "r.json").read_text())
    for row in result["results"]:
        assert row["determinism"] == {"kind": "bitwise", "runs": 6, "max_lambda": 0}
    assert {row["determinism"] for row in rows_of((flashbench.folder / "r.csv").read_text())} == {
        "bitwise"}
    assert (flashbench.folder / "r.md").read_text().count("bitwise") == 8
    report = flashbench("report", "r.json").stdout
    assert report == process.stdout


def test_without_repeats_results_say_nothing_of_them(flashbench):
    process = flashbench("verify", "--config", flashbench.config(), "--json", "r.json", "--quiet")
    assert "runs agree" not in process.stdout
    result = json.loads((flashbench.folder / "r.json").read_text())
    assert not any("determinism" in row or "placement" in row["case"] for row in result["results"])


# ---- faults that are found


def test_a_nan_fails_the_suite(faulty):
    process = faulty("nan", "verify", "--suite", "adversarial", "--filter", "distribution=one_hot",
                     "--filter", "head_dim=72,dtype=fp32", "--csv", "-", expect=3)
    assert {row["status"] for row in rows_of(process.stdout)} == {"failed"}


@pytest.mark.parametrize("verb", ["verify", "sweep"])
def test_stale_outputs_fail_timed_or_not(faulty, flashbench, verb):
    config = flashbench.config()
    process = faulty("stale", verb, "--config", config, expect=3)
    assert process.stdout.count("its outputs do not follow its inputs") == 4


@pytest.mark.parametrize("verb", ["verify", "sweep"])
def test_work_left_running_fails_and_ends_nothing_else(faulty, flashbench, verb):
    config = flashbench.config(cases=[
        {"pass": ["forward", "backward"], "seq": [16, 700], "q_heads": 4, "head_dim": 64}])
    process = faulty("left_running", verb, "--config", config, expect=3)
    assert len(re.findall(r"^  failed: ", process.stdout, re.MULTILINE)) == 4
