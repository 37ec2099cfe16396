"""scripts/torch_sdpa.py, if PyTorch is installed in $TORCH_PYTHON or the python3 on the PATH."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts/torch_sdpa.py"
PYTHON = os.environ.get("TORCH_PYTHON", shutil.which("python3"))

FORWARD_AND_BACKWARD = {"pass": ["forward", "backward"], "q_heads": 2, "head_dim": 16}


@pytest.fixture(scope="session")
def has_torch():
    if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode != 0:
        pytest.skip(f"PyTorch is not installed for {PYTHON}")


@pytest.fixture
def torch_sweep(has_torch, flashbench, monkeypatch, tmp_path):
    monkeypatch.setenv("FLASHBENCH", str(flashbench.binary))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(PYTHON)

    def run(*arguments, expect=0, **config):
        # Resolving the symbolic link would leave the virtual environment.
        path = f"{Path(PYTHON).parent}:{os.environ['PATH']}"
        process = subprocess.run(
            [PYTHON, SCRIPT, "--config", flashbench.config(**config), "--device", "cpu", "--out",
             "out", "--no-ceilings", "--quiet", *arguments],
            cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True,
            timeout=300)
        assert process.returncode == expect, process.stdout + process.stderr
        return json.loads((tmp_path / "out/tiny.json").read_text())["results"]

    return run


def by_provider(rows):
    found = {}
    for row in rows:
        found.setdefault(row["provider"], []).append(row)
    return found


def test_rows(torch_sweep):
    rows = by_provider(torch_sweep())
    assert set(rows) == {"torch:flash", "torch:math"}
    for row in rows["torch:flash"] + rows["torch:math"]:
        assert row["status"] == "ok", row["reason"]
        assert row["correctness"]["status"] == "passed"
        assert row["performance"]["median_ms"] > 0
        assert row["performance"]["share_of_ceiling"] > 0
    assert rows["torch:flash"][0]["kernel"] == "ScaledDotProductFlashAttentionForCpu"


@pytest.mark.parametrize("changes", [
    {"dtype": ["fp32", "fp16", "bf16"], "seq": [33, 300]},
    {"layout": "bhsd", "seq": 40},
    {"mask": ["causal_top_left", "causal_bottom_right"], "seq": 40},
    {"placement": ["strided", "offset"], "seq": 40},
    {"distribution": ["uniform", "outliers", "late_maximum", "one_hot"], "seq": 64},
    {"q_heads": 4, "kv_heads": 2, "seq": 40},
    {"mask": "causal_bottom_right", "q_len": 1, "kv_len": 77},
    {"scale": 0.3, "seq": 40},
], ids=str)
def test_every_axis(torch_sweep, changes):
    rows = torch_sweep(cases=[{**FORWARD_AND_BACKWARD, **changes}])
    assert {(row["provider"], row["status"], row["reason"]) for row in rows} == {
        ("torch:flash", "ok", ""), ("torch:math", "ok", "")}


@pytest.mark.parametrize("mask", ["causal_top_left", "causal_bottom_right"])
def test_masks_of_unequal_lengths(torch_sweep, mask):
    rows = by_provider(torch_sweep(cases=[{**FORWARD_AND_BACKWARD, "q_len": 33, "kv_len": 65,
                                           "mask": mask}]))
    assert {row["status"] for row in rows["torch:math"]} == {"ok"}
    for row in rows["torch:flash"]:
        assert row["status"] in ("ok", "unsupported"), row["reason"]


def test_head_dim_v(torch_sweep):
    rows = by_provider(torch_sweep(cases=[{**FORWARD_AND_BACKWARD, "seq": 40, "head_dim_v": 24}]))
    assert {row["status"] for row in rows["torch:math"]} == {"ok"}
    for row in rows["torch:flash"]:
        assert row["status"] in ("ok", "unsupported"), row["reason"]


def test_windows_are_not_offered_to_scaled_dot_product_attention(torch_sweep):
    rows = torch_sweep(cases=[{**FORWARD_AND_BACKWARD, "seq": 40, "window_left": 5}])
    assert {(row["status"], row["reason"]) for row in rows} == {("unsupported", "it does not support window_left")}


def test_cold_caches(torch_sweep):
    rows = torch_sweep("--cache", "cold")
    assert {row["performance"]["measurement"]["cache"] for row in rows} == {"cold"}


def test_context_parallel_asks_for_gpus(has_torch, flashbench):
    if subprocess.run([PYTHON, "-c", "from torch.distributed.tensor.experimental import context_parallel"],
                      capture_output=True).returncode != 0:
        pytest.skip(f"{PYTHON} has no context_parallel")
    script = flashbench.folder / "program"
    script.write_text(f"#!/bin/sh\nexec {PYTHON} {SCRIPT.parent}/torch_context_parallel.py serve\n")
    script.chmod(0o755)
    process = flashbench("verify", "--config", flashbench.config(), "--program", script, expect=2)
    assert "it runs on GPUs: expected --device cuda:0,1,..." in process.stderr


def test_unknown_provider(torch_sweep, has_torch):
    with pytest.raises(FileNotFoundError):  # no result
        torch_sweep("--providers", "torch:cudnn", expect=2)


@pytest.mark.parametrize("script", [SCRIPT, SCRIPT.parent / "torch_context_parallel.py"])
def test_help(script):
    process = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True)
    assert process.returncode == 0
    assert "--config" in process.stdout
