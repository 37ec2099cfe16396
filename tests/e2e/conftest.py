"""Drives the built binary: $FLASHBENCH, or the one of the preset cpu."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from browser import Browser

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "scripts"))

TINY = {
    "schema_version": 1,
    "name": "tiny",
    "device": "cpu",
    "measure": {
        "warmup_runs": 1,
        "warmup_seconds": 0,
        "min_samples": 2,
        "max_samples": 3,
        "max_seconds": 0.5,
    },
    "cases": [
        {"pass": ["forward", "backward"], "seq": [16, 33], "q_heads": 2, "head_dim": 16},
    ],
}


class Flashbench:
    """Runs the binary in its own folder, with these plugins."""

    def __init__(self, binary, folder, *plugins):
        self.binary = binary
        self.folder = folder
        self.plugins = [word for plugin in plugins for word in ("--plugin", str(plugin))]

    def command(self, *arguments):
        words = [str(argument) for argument in arguments]
        return [self.binary, *words[:1], *self.plugins, *words[1:]]

    def __call__(self, *arguments, expect=0, **options):
        """Returns the finished process; its exit code must be `expect`."""
        process = subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            **options,
        )
        said = f"{process.args}\n{process.stdout}\n{process.stderr}"
        assert process.returncode == expect, said
        return process

    def start(self, *arguments, pass_fds=(), **environment):
        """Starts a process and returns it; its stderr is a pipe."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env={**os.environ, **environment},
            pass_fds=pass_fds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def config(self, document=None, **changes):
        """Writes a config (default: the tiny one), and returns its path."""
        path = self.folder / "config.json"
        path.write_text(json.dumps({**(document or TINY), **changes}))
        return path


@pytest.fixture(scope="session")
def binary():
    path = Path(os.environ.get("FLASHBENCH", REPOSITORY / "build/cpu/bin/flashbench")).resolve()
    assert path.exists(), f"{path} is missing: run scripts/test, or name a binary by $FLASHBENCH"
    return path


@pytest.fixture
def flashbench(binary, tmp_path):
    return Flashbench(binary, tmp_path)


@pytest.fixture(scope="session")
def plugins(binary):
    """The folder of the plugins that were built with the binary."""
    path = Path(os.environ.get("FLASHBENCH_PLUGINS", binary.parents[1] / "plugins")).resolve()
    assert path.exists(), f"{path} is missing: run scripts/test, or name it by $FLASHBENCH_PLUGINS"
    return path


@pytest.fixture
def with_faults(binary, plugins, tmp_path):
    """The tool with the plugin whose fault $FLASHBENCH_FAULT names."""
    return Flashbench(binary, tmp_path, plugins / "faulty.so")


@pytest.fixture(scope="session")
def tiny_result(binary, tmp_path_factory):
    """A folder with the files of one small sweep, and what the sweep printed."""
    flashbench = Flashbench(binary, tmp_path_factory.mktemp("tiny"))
    process = flashbench("sweep", "--config", flashbench.config(), "--out", "out")
    return flashbench.folder / "out", process


@pytest.fixture
def browser(tmp_path):
    with Browser(tmp_path / "browser") as browser:
        yield browser
