"""Inputs from .npy files: those that fit, those that do not, and those that hold something else."""

import json
import shlex
import subprocess
import time

import numpy
import pytest


@pytest.mark.parametrize(
    "shapes, dtypes, said",
    [
        ([(1, 8, 2), (1, 8, 2, 16), (1, 8, 2, 16)], "fff", "4 dimensions"),
        ([(1, 8, 2, 16), (1, 8, 2, 24), (1, 8, 2, 24)], "fff", "k.npy"),
        ([(1, 8, 2, 16), (1, 8, 2, 16), (1, 9, 2, 16)], "fff", "v.npy"),
        ([(1, 8, 3, 16), (1, 8, 2, 16), (1, 8, 2, 16)], "fff", "k.npy"),
        ([(1, 8, 2, 12), (1, 8, 2, 12), (1, 8, 2, 12)], "fff", "head_dim"),
        ([(1, 8, 2, 16), (1, 8, 2, 16), (1, 8, 2, 12)], "fff", "head_dim_v"),
        ([(1, 8, 2, 16), (1, 8, 2, 16), (1, 8, 2, 16)], "fef", "float16"),
        ([(1, 8, 2, 16), (1, 8, 2, 16), (1, 8, 2, 16)], "dff", "<f8"),
    ],
)
def test_tensors_that_do_not_fit(flashbench, shapes, dtypes, said):
    for name, shape, dtype in zip("qkv", shapes, dtypes):
        numpy.save(flashbench.folder / f"{name}.npy", numpy.zeros(shape, dtype))
    process = flashbench("run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--device", "cpu",
                         "--no-time", expect=2)
    assert said in process.stderr


def test_what_files_say_is_not_said_again(flashbench):
    flashbench("run", "--seq", 16, "--q-heads", 1, "--no-time", "--dump", "dump")
    run = ["run", "--no-time", "--q", "dump/q.npy", "--k", "dump/k.npy", "--v", "dump/v.npy"]
    flashbench(*run, "--head-dim", 64, "--mask", "causal_bottom_right")
    flashbench(*run, "--seq", 16)
    flashbench(*run, "--seq", 99, "--q-len", 16, "--kv-len", 16)
    assert "--head-dim: the files have 64, got 32" in flashbench(*run, "--head-dim", 32, expect=2).stderr
    assert "--head-dim-v: the files have none, got 32" in flashbench(*run, "--head-dim-v", 32, expect=2).stderr
    assert "--seq: the files have q_len 16, got 5" in flashbench(*run, "--seq", 5, expect=2).stderr
    assert "--seq: the files have kv_len 16, got 5" in flashbench(*run, "--seq", 5, "--q-len", 16, expect=2).stderr
    for option in (["--seed", 9], ["--distribution", "uniform"]):
        assert f"{option[0]} cannot be combined with --q" in flashbench(*run, *option, expect=2).stderr


def test_a_dump_overwrites_no_inputs(flashbench):
    flashbench("run", "--seq", 16, "--q-heads", 1, "--no-time", "--dump", "dump")
    kept = {path: path.read_bytes() for path in (flashbench.folder / "dump").glob("*.npy")}
    run = ["run", "--no-time", "--q", "dump/q.npy", "--k", "dump/k.npy", "--v", "dump/v.npy"]
    process = flashbench(*run, "--dump", "dump/../dump", expect=2)
    assert "--dump dump/../dump/q.npy: the command reads this file" in process.stderr
    assert {path: path.read_bytes() for path in kept} == kept
    (flashbench.folder / "dump/q.npy").rename(flashbench.folder / "dump/naive/o.npy")
    run[run.index("dump/q.npy")] = "dump/naive/o.npy"
    assert "--dump dump/" in flashbench(*run, "--dump", "dump", expect=2).stderr
    flashbench(*run, "--dump", ".")


def test_files_that_hold_something_else_are_other_inputs(flashbench):
    def write(seed):
        flashbench("run", "--seq", 16, "--q-heads", 1, "--no-time", "--dump", "dump", "--seed", seed)

    run = ["run", "--q", "dump/q.npy", "--k", "dump/k.npy", "--v", "dump/v.npy", "--quiet", "--json"]
    write(1)
    flashbench(*run, "a.json")
    flashbench(*run, "b.json")
    flashbench("compare", "a.json", "b.json")
    write(2)
    flashbench(*run, "c.json")
    process = flashbench("compare", "a.json", "c.json", expect=5)
    assert "inputs: " in process.stderr and "dump/q.npy" in process.stderr
    flashbench("compare", "a.json", "c.json", "--allow-different", "inputs")

    case = {"seq": 16, "q_heads": 1, "head_dim": 64, "distribution": "files", "q": "dump/q.npy", "k": "dump/k.npy", "v": "dump/v.npy"}
    sweep = ["sweep", "--no-ceilings", "--out", "out", "--config", flashbench.config(cases=[case])]
    flashbench(*sweep, "--save-baseline", "main")
    flashbench(*sweep, "--baseline", "main")
    write(3)
    assert "inputs: " in flashbench(*sweep, "--baseline", "main", expect=5).stderr
    assert "without --resume it is replaced" in flashbench(*sweep, "--resume", expect=2).stderr


def test_files_that_change_during_a_sweep_give_no_result(flashbench):
    for folder, seed in (("one", 1), ("other", 2)):
        flashbench("run", "--seq", 16, "--q-heads", 1, "--no-time", "--dump", folder, "--seed", seed)
    folder = flashbench.folder
    case = {"seq": 16, "q_heads": 1, "head_dim": 64, "distribution": "files", "q": "one/q.npy", "k": "one/k.npy", "v": "one/v.npy"}
    config = flashbench.config(cases=[case], measure={"max_seconds": 4, "target_ci_width": 1e-9, "max_samples": 5000})
    with flashbench.start("sweep", "--no-ceilings", "--config", config, "--out", "out", "--providers", "tiled") as process:
        while not (folder / "out/tiny.journal").exists():  # begun with what the files hold
            assert process.poll() is None
            time.sleep(0.05)
        (folder / "other/v.npy").rename(folder / "one/v.npy")
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == 7
    assert "one/v.npy: its contents changed during the sweep" in stderr
    assert not (folder / "out/tiny.json").exists()


def test_the_command_of_a_row_is_quoted_for_a_shell(flashbench):
    odd = "it's $(odd); or so"
    flashbench("run", "--seq", 16, "--q-heads", 1, "--no-time", "--dump", odd)
    files = [word for letter in "qkv" for word in (f"--{letter}", f"{odd}/{letter}.npy")]
    flashbench("run", *files, "--no-time", "--quiet", "--json", "a.json")
    row = json.loads((flashbench.folder / "a.json").read_text())["results"][0]
    assert shlex.split(row["repro"])[-6:] == files
    command = row["repro"].replace("flashbench", shlex.quote(str(flashbench.binary)), 1)
    subprocess.run(["sh", "-c", f"{command} --no-time --quiet --json b.json"], cwd=flashbench.folder, check=True)
    assert json.loads((flashbench.folder / "b.json").read_text())["results"][0]["key"] == row["key"]
