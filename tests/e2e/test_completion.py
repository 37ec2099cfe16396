"""The completion scripts, and bash's completions from its own."""

import subprocess

import pytest

COMPLETE = """
source <("$0" completion bash)
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_flashbench
printf '%s\\n' "${COMPREPLY[@]}"
"""


def complete(flashbench, *words):
    """The completions that bash offers for the last word."""
    process = subprocess.run(["bash", "-c", COMPLETE, flashbench.binary, "flashbench", *words],
                             cwd=flashbench.folder, capture_output=True, text=True, check=True)
    assert process.stderr == ""
    return [word for word in process.stdout.split("\n") if word]


def test_bash_completes_verbs(flashbench):
    offered = complete(flashbench, "")
    assert {"sweep", "run", "verify", "compare", "report", "list", "info", "completion",
            "--version"} <= set(offered)
    assert complete(flashbench, "swe") == ["sweep"]


def test_bash_completes_options_of_the_verb(flashbench):
    assert complete(flashbench, "sweep", "--conf") == ["--config"]
    assert complete(flashbench, "report", "--conf") == []
    assert "--kv-heads" in complete(flashbench, "run", "--")


def test_bash_completes_choices(flashbench):
    assert complete(flashbench, "run", "--pass", "") == ["forward", "backward"]
    assert complete(flashbench, "run", "--mask", "causal_b") == ["causal_bottom_right"]
    assert complete(flashbench, "completion", "z") == ["zsh"]


def test_bash_completes_after_an_equals_sign(flashbench):
    """bash passes the = as a separate word."""
    assert complete(flashbench, "run", "--dtype", "=") == ["fp32", "fp16", "bf16", "e4m3"]
    assert complete(flashbench, "run", "--dtype", "=", "b") == ["bf16"]


def test_bash_completes_files_and_folders(flashbench):
    (flashbench.folder / "my config.json").touch()
    (flashbench.folder / "my folder").mkdir()
    assert complete(flashbench, "sweep", "--config", "my c") == ["my config.json"]
    assert complete(flashbench, "sweep", "--out", "my") == ["my folder"]
    assert complete(flashbench, "report", "my c") == ["my config.json"]
    assert complete(flashbench, "compare", "my config.json", "my c") == ["my config.json"]
    assert complete(flashbench, "sweep", "--baseline", "my c") == ["my config.json"]


def test_bash_offers_nothing_for_free_text(flashbench):
    (flashbench.folder / "file").touch()
    assert complete(flashbench, "run", "--seed", "") == []


def test_fish_and_zsh_know_every_option(flashbench):
    offered = set(complete(flashbench, "run", "--"))
    fish = flashbench("completion", "fish").stdout
    zsh = flashbench("completion", "zsh").stdout
    assert len(offered) > 20
    for option in offered:
        assert f"-l {option[2:]} " in fish
        assert f"{option}[" in zsh


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_shell_accepts_its_script(flashbench, shell):
    script = flashbench("completion", shell).stdout
    try:
        process = subprocess.run([shell, "-n", "/dev/stdin"], input=script, text=True,
                                 capture_output=True)
    except FileNotFoundError:
        pytest.skip(f"{shell} is not installed")
    assert (process.returncode, process.stderr) == (0, "")
