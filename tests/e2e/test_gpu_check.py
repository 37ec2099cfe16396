"""scripts/gpu-check, with a fake GPU, flashbench and PyTorch that only log how they are called."""

import json
import os
import re
import shutil
import subprocess

import pytest
from conftest import REPOSITORY
from lib.json_file import read_json

NVIDIA_SMI = "#!/bin/sh\necho 'NVIDIA H200'\n"
FLASHBENCH = """#!/bin/sh
echo "cudnn=$FLASHBENCH_CUDNN $*" >>"$CALLS"
[ -z "$RESULT" ] || echo '{}' >"$RESULT"
[ -n "$STATUS" ] || exit 0
mkdir -p "$TORCH_RESULT"
printf 'provider,status\ntorch:flash,ok\ntorch:math,%s\n' "$STATUS" >"$TORCH_RESULT/h200.csv"
exit 4
"""
# Says where its packages lie, as `python3 -c` is asked; serves as the shebang's python3 of torch_sdpa.py too.
PYTHON = """#!/bin/sh
if [ "$1" = -c ]; then
  case $2 in
    *nvidia.cudnn*) [ -n "$CUDNN" ] && echo "$CUDNN" ;;
    "import torch") [ -n "$TORCH" ] ;;
    *) [ -n "$TORCH" ] && echo /nowhere/torch ;;
  esac
  exit
fi
exec /usr/bin/python3 "$@"
"""
CXX = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
touch "$2"
"""


CHECKS = ["tests", "suite", "random", "kernels", "sanitize"]


def known_steps():
    """Those that run unless some are named."""
    return re.search(r"\|\| steps=\((.*)\)", (REPOSITORY / "scripts/gpu-check").read_text())[1].split()


@pytest.fixture
def gpu_check(tmp_path):
    repository = tmp_path / "repository"
    for part in ["scripts", "configs", "cmake", "examples/plugin/torch_flash"]:
        shutil.copytree(REPOSITORY / part, repository / part)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in [("nvidia-smi", NVIDIA_SMI), ("flashbench", FLASHBENCH), ("python3", PYTHON), ("cxx", CXX)]:
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    def run(*steps, **environment):
        calls = tmp_path / "calls"
        calls.write_text("")
        inherited = {name: value for name, value in os.environ.items() if name != "FLASHBENCH_CUDNN"}
        process = subprocess.run(
            [repository / "scripts/gpu-check", "--binary", folder / "flashbench", "--out", tmp_path / "out", *steps],
            env={**inherited, "PATH": f"{folder}:{os.environ['PATH']}", "CXX": str(folder / "cxx"),
                 "CALLS": str(calls), **environment},
            capture_output=True, text=True, timeout=60)
        assert process.returncode == 0, process.stderr
        return calls.read_text().splitlines(), process.stderr

    return run


def test_the_sweeps_that_make_the_committed_results(gpu_check, tmp_path):
    calls, said = gpu_check("grid", "fp16", "ladder", "short", "fp32", "torch")
    expected = [f"cudnn= sweep --config configs/{name}.json --out {tmp_path}/out --resume"
                for name in ["h200", "fp16", "ladder", "short", "fp32"]]
    assert calls == expected
    assert "python3 has no PyTorch: no rows of its backends" in said
    assert "the grid goes without FlashAttention-2" in said


def test_results_are_compressed_over_older_ones(gpu_check, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/fp16.json.gz").write_bytes(b"older")
    gpu_check("fp16", RESULT=str(tmp_path / "out/fp16.json"))
    assert read_json(tmp_path / "out/fp16.json.gz") == {}
    assert not (tmp_path / "out/fp16.json").exists()


def test_rivals_run_where_ours_are_compared(gpu_check, tmp_path):
    compared = ["grouped", "models", "decode", "decode_paged", "chunks", "random_shapes"]
    calls, _ = gpu_check("--plugin", "fa3=libfa3.so", "--plugin", "other.so", "grid", *compared, "fp16")
    rivals = " --plugin fa3=libfa3.so --plugin other.so"
    assert calls == [*(f"cudnn= sweep --config configs/{name}.json --out {tmp_path}/out --resume{rivals}"
                       for name in ["h200", *compared]),
                     f"cudnn= sweep --config configs/fp16.json --out {tmp_path}/out --resume"]


def test_every_sweep_is_of_the_gpu(gpu_check):
    steps = [step for step in known_steps() if step not in [*CHECKS, "split", "torch"]]
    calls, _ = gpu_check(*steps)
    assert len(calls) == len(steps)
    for call, step in zip(calls, steps):
        config = re.search(r"--config (\S*)", call)[1]
        assert config == f"configs/{'h200' if step == 'grid' else step}.json"
        of_config = json.loads((REPOSITORY / config).read_text()).get("device")
        assert call.endswith(" --device cuda") == (of_config != "cuda"), call


def test_the_help_and_the_results_name_every_step():
    """The checks, and split, which takes four GPUs, are no part of the command that makes the results of one."""
    steps = known_steps()
    said = subprocess.run([REPOSITORY / "scripts/gpu-check", "--help"], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1].endswith("on where it stopped.")
    assert re.search(r"Steps, [^:]*: ([a-z0-9_\s]*)\.", said)[1].split() == steps
    again = re.search(r"scripts/gpu-check ([a-z0-9_\s\\]*)\nscripts/docs\n", (REPOSITORY / "results/README.md").read_text())[1]
    assert again.replace("\\", "").split() == [step for step in steps if step not in [*CHECKS, "split"]]


def test_pytorch_is_a_peer_in_the_grid_and_has_a_sweep_of_its_own(gpu_check, tmp_path):
    (grid, torch), said = gpu_check("grid", "torch", TORCH="1", CUDNN="/its/cudnn/lib")
    plugin = tmp_path / "repository/build/plugin/torch_flash.so"
    assert grid == (f"cudnn=/its/cudnn/lib sweep --config configs/h200.json --out {tmp_path}/out --resume "
                    f"--plugin {plugin}")
    assert torch.startswith("cudnn=/its/cudnn/lib sweep --program scripts/torch_sdpa.py --config configs/h200.json ")
    assert torch.endswith(f" --out {tmp_path}/out/torch_sdpa --resume")
    assert "no PyTorch" not in said


@pytest.mark.parametrize("status, accepted", [("out_of_memory", True), ("crashed", False)])
def test_pytorch_may_run_out_of_memory(gpu_check, tmp_path, status, accepted):
    environment = {"TORCH": "1", "STATUS": status, "TORCH_RESULT": str(tmp_path / "out/torch_sdpa")}
    if accepted:
        gpu_check("torch", **environment)
    else:
        with pytest.raises(AssertionError):
            gpu_check("torch", **environment)


@pytest.mark.parametrize("gpus, lists", [(1, [""]), (3, [""]), (4, ["", " --device cuda:0,1,2,3"])])
def test_several_gpus_are_verified_and_only_then_timed(gpu_check, tmp_path, gpus, lists):
    (tmp_path / "bin/nvidia-smi").write_text("#!/bin/sh\n" + "echo 'NVIDIA H200'\n" * gpus)
    calls, said = gpu_check("split")
    expected = [f"cudnn= verify --config configs/split_gpus.json{device} --repeat 3" for device in lists]
    if gpus == 4:
        expected += [
            f"cudnn= sweep --config configs/{name}.json --out {tmp_path}/out --resume"
            for name in ["split_h200", "split_1m", "split_decode_gpus"]
        ]
    assert calls == expected
    assert ("4 are needed" in said) == (gpus < 4)


def test_all_kernels_run_under_three_sanitizers(gpu_check, tmp_path):
    sanitizer = tmp_path / "bin/compute-sanitizer"
    sanitizer.write_text('#!/bin/sh\necho "$2 $*" >>"$CALLS"\n')
    sanitizer.chmod(0o755)
    calls, _ = gpu_check("sanitize")
    assert [call.split()[0] for call in calls] == ["memcheck", "initcheck", "racecheck", "racecheck"]
    assert all("verify --config configs/sanitize.json --no-isolate" in call for call in calls)
    assert ["--providers" in call for call in calls] == [False, False, True, True]


def test_the_users_cudnn_comes_first(gpu_check):
    calls, _ = gpu_check("fp16", CUDNN="/its/cudnn/lib", FLASHBENCH_CUDNN="/mine")
    assert calls[0].startswith("cudnn=/mine ")


def test_each_step_is_known(gpu_check):
    with pytest.raises(AssertionError, match="unknown step peer"):
        gpu_check("peer")
