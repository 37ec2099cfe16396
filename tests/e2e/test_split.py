"""Problems that several devices share: groups of a CPU's threads stand for GPUs."""

import csv
import io
import json

import pytest

SPLITS = ["tiled:gather", "tiled:ulysses", "tiled:ring", "tiled:gated"]
SMALL = ["--max-samples", 2, "--min-samples", 2, "--warmup", 1, "--device", "cpu", "--threads", 2]


def run(flashbench, *more, providers=("tiled", *SPLITS), **options):
    flashbench("run", "--providers", ",".join(providers), "--q-heads", 4, "--head-dim", 16, *SMALL, "--json", "run.json",
               *more, **options)
    return json.loads((flashbench.folder / "run.json").read_text())["results"]


def test_each_algorithm_is_verified_and_timed_beside_one_device(flashbench):
    rows = run(flashbench, "--seq", 61, "--gpus", 2, "--mask", "causal_bottom_right")
    assert [row["provider"] for row in rows] == ["tiled", *SPLITS]
    for row in rows:
        assert row["status"] == "ok" and row["performance"], row["reason"]
        assert row["case"]["gpus"] == 2 and row["key"].endswith("/gpus2")
    for row in rows[1:]:
        group = row["group"]
        assert len(group["rank_s"]) == 2 and min(group["rank_s"]) > 0 and min(group["sent_bytes"]) > 0
        assert min(group[f"{part}_s"] for part in ("everything", "computing", "copying")) > 0
    assert "group" not in rows[0]


def test_the_columns_follow_from_the_row(flashbench):
    run(flashbench, "--seq", 64, "--gpus", 4, "--split", "contiguous")
    report = flashbench("report", "run.json", "--format", "csv").stdout
    one, *rows = csv.DictReader(io.StringIO(report, newline=""))
    assert one["eff_strong"] == one["per_gpu_ms"] == one["exposed_ms"] == ""
    for row in rows:
        assert (row["gpus"], row["split"]) == ("4", "contiguous")
        devices = [float(ms) for ms in row["per_gpu_ms"].split()]
        assert float(row["skew_pct"]) == pytest.approx((max(devices) * 4 / sum(devices) - 1) * 100, rel=1e-3, abs=1e-3)
        assert float(row["overlap"]) == pytest.approx(1 - float(row["exposed_ms"]) / float(row["comm_only_ms"]), rel=1e-3,
                                                      abs=1e-5)
        assert float(row["eff_strong"]) == pytest.approx(float(one["median_ms"]) / (4 * float(row["median_ms"])), rel=1e-3)
    again = flashbench("report", "run.json", "--format", "json").stdout
    assert json.loads(again)["results"][1]["group"] == json.loads((flashbench.folder / "run.json").read_text())["results"][1]["group"]


def test_backward(flashbench):
    rows = run(flashbench, "--seq", 61, "--gpus", 2, "--pass", "backward")
    assert [row["status"] for row in rows] == ["ok", "ok", "ok", "ok", "unsupported"]
    assert rows[-1]["reason"] == "it has no backward pass"


def test_a_provider_of_one_device_is_not_offered_the_problem(flashbench):
    rows = run(flashbench, "--seq", 32, "--gpus", 2, providers=("naive", "tiled:ring"))
    assert [row["status"] for row in rows] == ["unsupported", "ok"]
    assert rows[0]["reason"] == "it does not support gpus"


def test_without_gpus_the_providers_say_what_they_need(flashbench):
    rows = run(flashbench, "--seq", 32)
    assert [row["status"] for row in rows] == ["ok"] + ["unsupported"] * 4
    assert all("(gpus)" in row["reason"] for row in rows[1:])


@pytest.mark.parametrize("arguments, said", [
    (["--gpus", 1], "1"), (["--gpus", 65], "65"), (["--gpus", 2, "--split", "striped"], "striped"),
    (["--split", "contiguous"], "split needs gpus"),
])
def test_what_is_no_split_is_refused(flashbench, arguments, said):
    process = flashbench("run", "--seq", 32, "--q-heads", 4, "--head-dim", 16, *arguments, expect=2)
    assert said in process.stderr


def test_the_shipped_config_names_its_cases(flashbench):
    listed = flashbench("sweep", "--config", "split", "--dry-run").stdout
    assert listed.count("gpus 4  contiguous") == 1 and "9 cases for tiled, tiled:gather" in listed
