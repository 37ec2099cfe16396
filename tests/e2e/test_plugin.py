"""Kernels from shared objects: valid, refused, failing and changed ones."""

import json
import os
import shutil

import pytest
from conftest import TINY, Flashbench

TINY_CASES = 4


@pytest.fixture
def with_plain_c(binary, plugins, tmp_path):
    return Flashbench(binary, tmp_path, plugins / "plain_c.so")


def rows(path, provider):
    results = json.loads(path.read_text())["results"]
    return [row for row in results if row["provider"] == provider]


def fault(text):
    return {"env": {**os.environ, "FLASHBENCH_FAULT": text}}


# ---- valid plugins


def test_a_plugin_is_verified_and_timed_beside_the_others(with_plain_c, plugins):
    with_plain_c("sweep", "--config", with_plain_c.config(), "--out", "out", "--no-ceilings")
    result = with_plain_c.folder / "out/tiny.json"
    own = rows(result, "plugin:plain_c")
    assert len(own) == len(rows(result, "tiled")) == TINY_CASES
    for row in own:
        assert row["status"] == "ok" and row["correctness"]["status"] == "passed"
        assert row["performance"]["median_ms"] > 0
        assert row["kernel"] == f"attention_{row['case']['pass']}"
        assert row["traffic"]["bytes_requested"] is None
        assert row["plugin"]["path"] == str(plugins / "plain_c.so")
        assert len(row["plugin"]["xxh3"]) == 16
    assert "plugin" not in rows(result, "tiled")[0]


def test_a_row_says_how_to_run_it_again(with_plain_c, flashbench, plugins):
    with_plain_c("run", "--seq", 33, "--head-dim", 16, "--device", "cpu", "--no-time", "--json",
                 "first.json")
    row, = rows(with_plain_c.folder / "first.json", "plugin:plain_c")
    assert f"--plugin plain_c={plugins / 'plain_c.so'}" in row["repro"]
    flashbench(*row["repro"].split()[1:], "--device", "cpu", "--no-time", "--json", "again.json")
    again, = json.loads((flashbench.folder / "again.json").read_text())["results"]
    assert again["key"] == row["key"] and again["correctness"] == row["correctness"]
    report = json.loads(flashbench("report", "again.json", "--format", "json").stdout)
    assert report["results"] == [again]


def test_the_adversarial_suite_takes_plugins_too(with_plain_c):
    with_plain_c("verify", "--suite", "adversarial", "--filter", "dtype=fp32,head_dim=64|72",
                 "--providers", "plugin:plain_c", "--device", "cpu", "--quiet", "--json", "r.json")
    own = rows(with_plain_c.folder / "r.json", "plugin:plain_c")
    with_options = [row for row in own if {"window_left", "window_right", "head_dim_v"} & row["case"].keys()]
    with_lengths = [row for row in own if "lengths" in row["case"]]
    assert len(with_options) > 50 and len(own) > len(with_options) + 50 and len(with_lengths) > 50
    assert sum("page_size" in row["case"] for row in own) > 50
    assert {row["key"] for row in own if row["status"] != "ok"} == set()


def test_a_plugin_without_features_is_not_asked_about_windows(with_faults):
    with_faults("run", "--seq", 33, "--head-dim", 16, "--head-dim-v", 8, "--window-left", 4, "--window-right", 0,
                "--device", "cpu", "--no-time", "--json", "r.json")
    row, = rows(with_faults.folder / "r.json", "plugin:faulty")
    assert row["status"] == "unsupported"
    assert row["reason"] == "it does not support window_left and window_right and head_dim_v"
    assert row["correctness"]["status"] == "not_checked"


@pytest.mark.parametrize("layout", ["ragged", "bshd"])
def test_a_plugin_without_features_is_not_asked_about_lengths(with_faults, layout):
    with_faults("run", "--lengths", "q5_q3s9", "--layout", layout, "--head-dim", 16, "--device", "cpu", "--no-time",
                "--json", "r.json")
    row, = rows(with_faults.folder / "r.json", "plugin:faulty")
    assert (row["status"], row["reason"]) == ("unsupported", "it does not support lengths")


def test_a_plugin_without_features_is_not_asked_about_pages(with_faults):
    with_faults("run", "--seq", 33, "--head-dim", 16, "--page-size", 16, "--kv-layout", "paged_hnd", "--device", "cpu",
                "--no-time", "--json", "r.json")
    row, = rows(with_faults.folder / "r.json", "plugin:faulty")
    assert (row["status"], row["reason"]) == ("unsupported", "it does not support page_size and kv_layout")


def test_plugins_run_beside_the_providers_that_are_named(with_plain_c, plugins):
    def order(*arguments):
        with_plain_c("run", "--seq", 16, "--head-dim", 16, "--device", "cpu", "--no-time",
                     "--json", "r.json", *arguments)
        results = json.loads((with_plain_c.folder / "r.json").read_text())["results"]
        return [row["provider"] for row in results]

    assert order() == ["naive", "tiled", "plugin:plain_c"]
    assert order("--providers", "tiled") == ["tiled", "plugin:plain_c"]
    assert order("--providers", "plugin:plain_c,tiled") == ["plugin:plain_c", "tiled"]
    assert order("--providers", "tiled", "--plugin", f"b={plugins / 'plain_c.so'}") == [
        "tiled", "plugin:plain_c", "plugin:b"]
    assert order("--no-isolate") == ["naive", "tiled", "plugin:plain_c"]


def test_list_and_dry_run_name_plugins(with_plain_c, plugins):
    listed = with_plain_c("list", "--device", "cpu").stdout
    assert "  plugin:plain_c (cpu): plain C, fp32, one thread\n    forward: fp32\n" in listed
    assert "    not backward bf16: plain C has no 16-bit floats: fp32 only\n" in listed
    planned = with_plain_c("sweep", "--config", with_plain_c.config(), "--dry-run").stdout
    assert "4 cases for naive, tiled, plugin:plain_c on device cpu" in planned


def test_the_cuda_example_is_a_plugin(flashbench, plugins):
    path = plugins / "cuda_rows.so"
    if not path.exists():
        pytest.skip("this build is without CUDA")
    listed = flashbench("list", "--device", "cpu", "--plugin", path).stdout
    assert "plugin:cuda_rows (cuda): " in listed and "not available here: it needs a cuda device" in listed
    process = flashbench("run", "--seq", 16, "--device", "cpu", "--no-time", "--plugin", path)
    assert "it needs a cuda device" in process.stdout


# ---- invalid plugins


@pytest.mark.parametrize(
    "name, said",
    [
        ("no_version", "it does not export flashbench_plugin_abi_version"),
        ("no_table", "it does not export flashbench_plugin_table"),
        ("other_version", "expected version 1 of the plugin interface, found 2"),
        ("no_functions", "is null"),
    ],
)
@pytest.mark.parametrize("isolation", [[], ["--no-isolate"]])
def test_what_does_not_keep_to_the_interface_is_refused_at_once(flashbench, plugins, name, said,
                                                                isolation):
    path = plugins / f"{name}.so"
    process = flashbench("sweep", "--config", flashbench.config(), "--out", "out", "--plugin",
                         path, *isolation, expect=2)
    assert f"plugin {path}: " in process.stderr and said in process.stderr
    assert not (flashbench.folder / "out").exists()
    listed = flashbench("list", "--device", "cpu", "--plugin", path, "--plugin",
                        plugins / "plain_c.so").stdout
    assert f"  plugin:{name}\n    not available here: plugin {path}: " in listed and said in listed
    assert "plugin:plain_c (cpu)" in listed  # an invalid plugin does not hide another


def test_bad_arguments(flashbench, plugins):
    def refused(*arguments, code=2):
        return flashbench("run", "--seq", 16, "--device", "cpu", *arguments, expect=code).stderr

    text = flashbench.folder / "text.so"
    text.write_text("not a shared object")
    assert "it cannot be loaded: " in refused("--plugin", text)
    assert "expected the absolute path" in refused("--plugin", "plain_c.so")
    assert "No such file" in refused("--plugin", flashbench.folder / "missing.so", code=7)
    assert "plugin:plain_c\"; --plugin takes its file" in refused("--providers", "plugin:plain_c")
    twice = plugins / "plain_c.so"
    assert "both called plugin:plain_c" in refused("--plugin", twice, "--plugin", twice)


# ---- failing and changed plugins


def test_a_crash_at_load_is_a_row_for_every_case(with_faults, plugins):
    with_faults("sweep", "--config", with_faults.config(), "--out", "out", "--no-ceilings",
                "--plugin", plugins / "plain_c.so", expect=4, **fault("crash_at_load"))
    result = with_faults.folder / "out/tiny.json"
    crashed = rows(result, "plugin:faulty")
    assert len(crashed) == TINY_CASES and {row["status"] for row in crashed} == {"crashed"}
    for provider in ("naive", "tiled", "plugin:plain_c"):
        assert {row["status"] for row in rows(result, provider)} == {"ok"}
    listed = with_faults("list", "--device", "cpu", **fault("crash_at_load")).stdout
    assert "plugin:faulty\n    not available here: when it was loaded, its worker was killed" in listed


def test_a_wrong_plugin_fails_and_has_no_time(with_faults):
    with_faults("sweep", "--config", with_faults.config(), "--out", "out", "--no-ceilings",
                expect=3, **fault("wrong_shape"))
    for row in rows(with_faults.folder / "out/tiny.json", "plugin:faulty"):
        assert row["status"] == "failed" and row["performance"] is None


def test_a_sweep_is_not_resumed_with_another_plugin(flashbench, plugins):
    own = flashbench.folder / "own.so"
    shutil.copy(plugins / "plain_c.so", own)
    journal = flashbench.folder / "out/tiny.journal"
    sweep = ["sweep", "--config", flashbench.config(TINY), "--out", "out", "--no-ceilings",
             "--quiet"]
    # If the results cannot be written, the journal is kept.
    (flashbench.folder / "out").mkdir()
    (flashbench.folder / "out/tiny.csv").symlink_to("/dev/full")
    flashbench(*sweep, "--plugin", own, expect=7)
    (flashbench.folder / "out/tiny.csv").unlink()
    kept = journal.read_bytes()

    with open(own, "ab") as file:
        file.write(b"rebuilt")
    process = flashbench(*sweep, "--plugin", own, "--resume", expect=2)
    assert "/plugins/plugin:own/xxh3: " in process.stderr
    process = flashbench(*sweep, "--plugin", plugins / "plain_c.so", "--resume", expect=2)
    assert "/plugins" in process.stderr
    assert journal.read_bytes() == kept
    os.truncate(own, own.stat().st_size - len(b"rebuilt"))
    flashbench(*sweep, "--plugin", own, "--resume")
    assert len(rows(flashbench.folder / "out/tiny.json", "plugin:own")) == TINY_CASES
