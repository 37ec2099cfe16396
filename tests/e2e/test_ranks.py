"""Another program with a process for each device: its rows, and that no process outlives a run."""

import json
import os
import select
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "ranks_program.py"


@pytest.fixture(autouse=True)
def processes(tmp_path, monkeypatch):
    """A pipe that all processes of the program have open."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("RANKS_PROGRAM_PIPE", str(tmp_path / "pipe"))
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(pipe, True)
    yield pipe
    os.close(pipe)


def wait_until_they_began(pipe, count):
    for _ in range(count):
        assert select.select([pipe], [], [], 60)[0], "waited in vain"
        assert os.read(pipe, 1) == b"r"


def wait_until_they_ended(pipe):
    while select.select([pipe], [], [], 60)[0]:
        if os.read(pipe, 100) == b"":
            return
    raise AssertionError("a process of the program is still there")


def arguments(flashbench, provider, **case):
    config = flashbench.config(cases=[{"seq": 16, "q_heads": 2, "head_dim": 8, "gpus": 2, **case}])
    return ["sweep", "--config", config, "--program", PROGRAM, "--providers", provider,
            "--device", "cpu", "--out", "out", "--no-ceilings", "--quiet"]


def rows_of(flashbench):
    return json.loads((flashbench.folder / "out/tiny.json").read_text())["results"]


def test_rows_are_verified_and_timed(flashbench, processes):
    case = {"pass": ["forward", "backward"], "mask": "causal_bottom_right", "gpus": [2, 3],
            "split": "contiguous"}
    flashbench(*arguments(flashbench, "shared", **case))
    rows = rows_of(flashbench)
    assert [(row["status"], row["case"]["gpus"]) for row in rows] == [("ok", 2), ("ok", 3)] * 2
    assert all(row["correctness"]["status"] == "passed" and row["performance"] for row in rows)
    wait_until_they_ended(processes)


@pytest.mark.parametrize("provider, options, status, said", [
    ("dies", [], "crashed", "rank 1 was killed by signal 9 (Killed)"),
    ("fails", [], "crashed", "rank 1: something broke; other ranks wait for it"),
    ("hangs", ["--case-timeout", 2], "timeout", "rank 1 did not finish step compute of run in "),
])
def test_a_peer_that_misbehaves_is_named(flashbench, processes, provider, options, status, said):
    flashbench(*arguments(flashbench, f"shared,{provider}"), *options, expect=4)
    shared, other = rows_of(flashbench)
    assert shared["status"] == "ok", shared["reason"]
    assert (other["status"], said in other["reason"]) == (status, True), other["reason"]
    wait_until_they_ended(processes)


def test_all_ranks_end_with_the_sweep(flashbench, processes):
    process = flashbench.start(*arguments(flashbench, "hangs"))
    wait_until_they_began(processes, 2)
    process.kill()
    process.communicate()
    wait_until_they_ended(processes)
