"""What `cmake --install` installs."""

import json
import subprocess

import pytest


@pytest.fixture(scope="module")
def prefix(binary, tmp_path_factory):
    build = binary.parents[1]
    if not (build / "cmake_install.cmake").exists():
        pytest.skip("the binary is not in a build folder")
    prefix = tmp_path_factory.mktemp("prefix")
    subprocess.run(["cmake", "--install", build, "--prefix", prefix], check=True,
                   capture_output=True)
    return prefix


def test_binary_runs(prefix):
    process = subprocess.run([prefix / "bin/flashbench", "--version"], capture_output=True)
    assert process.returncode == 0


def test_configs(prefix):
    configs = {path.name: json.loads(path.read_text())
               for path in (prefix / "share/flashbench/configs").iterdir()}
    assert {"quick.json", "cpu.json", "sweep.schema.json"} <= set(configs)


def test_configs_are_known_by_name(prefix, tmp_path):
    sweep = [prefix / "bin/flashbench", "sweep"]
    process = subprocess.run([*sweep, "--config", "quick", "--dry-run"], cwd=tmp_path,
                             capture_output=True, text=True)
    assert process.returncode == 0 and "cases for" in process.stdout
    process = subprocess.run([*sweep, "--config", "quik"], cwd=tmp_path, capture_output=True,
                             text=True)
    assert process.returncode == 7
    assert str(prefix / "share/flashbench/configs") in process.stderr


def test_header_for_plugins(prefix):
    assert "flashbench_plugin_table" in (prefix / "include/flashbench/plugin.h").read_text()


@pytest.mark.parametrize(
    "shell, path",
    [
        ("bash", "share/bash-completion/completions/flashbench"),
        ("zsh", "share/zsh/site-functions/_flashbench"),
        ("fish", "share/fish/vendor_completions.d/flashbench.fish"),
    ],
)
def test_completions(prefix, flashbench, shell, path):
    assert (prefix / path).read_text() == flashbench("completion", shell).stdout
