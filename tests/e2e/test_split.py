"""Problems that several devices share: groups of a CPU's threads stand for GPUs."""

import csv
import io
import json
import os
import statistics

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
    results = run(flashbench, "--seq", 64, "--gpus", 4, "--split", "contiguous")
    report = flashbench("report", "run.json", "--format", "csv").stdout
    one, *rows = csv.DictReader(io.StringIO(report, newline=""))
    assert one["eff_strong"] == one["eff_same_work"] == one["busbw_gbps"] == one["per_gpu_ms"] == one["exposed_ms"] == ""
    share, = [ceiling for ceiling in results[1]["performance"]["round_ceilings"] if ceiling["name"] == "same_work"]
    for row in rows:
        assert (row["gpus"], row["split"]) == ("4", "contiguous")
        devices = [float(ms) for ms in row["per_gpu_ms"].split()]
        assert float(row["skew_pct"]) == pytest.approx((max(devices) * 4 / sum(devices) - 1) * 100, rel=1e-3, abs=1e-3)
        assert float(row["overlap"]) == pytest.approx(1 - float(row["exposed_ms"]) / float(row["comm_only_ms"]), rel=1e-3,
                                                      abs=1e-5)
        assert float(row["eff_strong"]) == pytest.approx(float(one["median_ms"]) / (4 * float(row["median_ms"])), rel=1e-3)
        share_ms = statistics.median(share["measurement"]["samples_s"]) * 1e3
        assert float(row["eff_same_work"]) == pytest.approx(share_ms / float(row["median_ms"]), rel=1e-3)
        assert float(row["busbw_gbps"]) == pytest.approx(
            float(row["sent_bytes"]) / float(row["comm_only_ms"]) / 1e6, rel=1e-3)
    again = flashbench("report", "run.json", "--format", "json").stdout
    assert json.loads(again)["results"][1]["group"] == json.loads((flashbench.folder / "run.json").read_text())["results"][1]["group"]


def test_backward(flashbench):
    rows = run(flashbench, "--seq", 61, "--gpus", 2, "--pass", "backward")
    assert [row["status"] for row in rows] == ["ok"] * 5


@pytest.mark.parametrize("q_len, kv_len", [(1, 97), (4, 128), (16, 20)])
def test_decoding_with_a_part_of_the_keys_on_each_device(flashbench, q_len, kv_len):
    rows = run(flashbench, "--q-len", q_len, "--kv-len", kv_len, "--kv-heads", 2, "--gpus", 4, "--split", "keys",
               "--mask", "causal_bottom_right", providers=("tiled", "tiled:dcp", "tiled:ring"))
    assert [row["status"] for row in rows] == ["ok", "ok", "unsupported"]
    assert rows[1]["key"].endswith("/gpus4/keys") and len(rows[1]["group"]["rank_s"]) == 4
    assert rows[2]["reason"] == "it splits tokens: expected split zigzag or contiguous, got keys"


def test_decoding_takes_requests_of_equal_lengths(flashbench):
    rows = run(flashbench, "--lengths", "1q64_1q96", "--gpus", 2, "--split", "keys", providers=("tiled", "tiled:dcp"))
    assert [row["status"] for row in rows] == ["ok", "unsupported"]
    assert rows[1]["reason"] == "it does not support lengths"


def test_a_rank_that_hangs_is_named_with_its_step(flashbench, plugins):
    """A copy of rank 2 hangs in the second of three cases, in which a row of a head has 96 bytes, and 8 rows of all heads 3,072."""
    config = flashbench.config(
        name="hung",
        providers=["tiled:ulysses", "tiled:ring"],
        cases=[{"seq": 64, "q_heads": 4, "gpus": 4, "head_dim": [16, 24, 32]}],
    )
    hung = {"LD_PRELOAD": str(plugins / "hung_copy.so"), "FLASHBENCH_HUNG_THREAD": "copy 2", "FLASHBENCH_HUNG_BYTES": "96,3072"}
    flashbench("sweep", "--config", config, "--out", "out", "--no-ceilings", "--threads", 2, "--case-timeout", 3, expect=4,
               env={**os.environ, **hung})
    rows = json.loads((flashbench.folder / "out/hung.json").read_text())["results"]
    assert [row["status"] for row in rows] == ["ok", "ok", "timeout", "timeout", "ok", "ok"]
    ulysses, ring = rows[2:4]
    assert ulysses["reason"].startswith("rank 2 did not finish step 1 of 2 (pull of heads 2 to 2) in ")
    assert ring["reason"].startswith("rank 2 did not finish step 2 of 4 (pull of keys 24 to 31 and 32 to 39) in ")
    for row in (ulysses, ring):
        assert "it did not end within 3 s; its worker was killed" in row["reason"]
        assert row["performance"] is None and "group" not in row


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


def test_the_shipped_configs_name_their_cases(flashbench):
    listed = flashbench("sweep", "--config", "split", "--dry-run").stdout
    assert listed.count("gpus 4  contiguous") == 1 and "11 cases for tiled, tiled:gather" in listed
    listed = flashbench("sweep", "--config", "split_decode", "--dry-run").stdout
    assert listed.count("gpus 2  keys") == 3 and "7 cases for tiled, tiled:dcp" in listed
