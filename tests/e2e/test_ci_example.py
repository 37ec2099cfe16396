"""The example for CI: the shell steps of its workflow and of its page, in the repository of a kernel."""

import json
import os
import re
import shutil
import subprocess

import pytest
import yaml
from conftest import REPOSITORY

WORKFLOW = yaml.safe_load((REPOSITORY / "examples/ci/flashbench.yml").read_text())
STEPS = WORKFLOW["jobs"]["gate"]["steps"]
KERNEL = ["attention.c", "attention.h", "plugin.c"]

# The conditions of the steps: whether they hold on the event, after a step failed or not, with a result or not.
CONDITIONS = {
    None: lambda event, failed, measured: not failed,
    "github.event_name == 'push'": lambda event, failed, measured: not failed and event == "push",
    "github.event_name == 'pull_request'": lambda event, failed, measured: not failed and event == "pull_request",
    "${{ !cancelled() && github.event_name == 'pull_request' && hashFiles('flashbench/gate.json') != '' }}":
        lambda event, failed, measured: event == "pull_request" and measured,
    "${{ !cancelled() }}": lambda event, failed, measured: True,
}

# The config "gate" of the workflow, in less time.
CONFIG = {
    "schema_version": 1,
    "name": "gate",
    "device": "cpu",
    "threads": 1,
    "measure": {"warmup_runs": 1, "warmup_seconds": 0, "min_samples": 20, "max_samples": 20, "max_seconds": 1},
    "cases": [{"seq": 64, "q_heads": 1, "head_dim": 32}],
}


def once(text, old, new):
    assert text.count(old) == 1
    return text.replace(old, new)


def slow(source):
    """A run that takes thirty times as long: beyond doubt on the busiest machine."""
    call = "attention_forward(p, q, k, v, o, logsumexp, s->workspace);"
    return once(source, call, f"for (int i = 0; i < 30; ++i) {call}")


def wrong(source):
    return once(source, ".scale = (float)p->scale", ".scale = 2 * (float)p->scale")


def crashing(source):
    return once(source, "  (void)stream, (void)why", "  abort();\n  (void)stream, (void)why")


class Runner:
    """A runner of Actions: a workspace for each job, and the cache and the artefacts that jobs leave."""

    def __init__(self, binary, folder):
        self.folder, self.cache, self.artefacts = folder, folder / "cache", folder / "artefacts"
        (folder / "bin").mkdir()
        (folder / "bin/flashbench").symlink_to(binary)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        self.jobs = 0

    def workspace(self, change=lambda source: source):
        """A checkout of the kernel with the change."""
        self.jobs += 1
        folder = self.folder / f"job{self.jobs}"
        folder.mkdir()
        for name in KERNEL:
            shutil.copy(REPOSITORY / "examples/plugin/cpu" / name, folder)
        (folder / "plugin.c").write_text(change((folder / "plugin.c").read_text()))
        return folder

    def environment(self):
        sweep = once(WORKFLOW["env"]["SWEEP"], "--config gate", f"--config {self.folder / 'config.json'}")
        return {**os.environ, **WORKFLOW["env"], "SWEEP": sweep, "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
                "GITHUB_BASE_REF": "main", "C_INCLUDE_PATH": str(REPOSITORY / "include"),  # as an installed flashbench
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    def shell(self, script, workspace):
        assert WORKFLOW["defaults"]["run"]["shell"] == "bash"
        assert "${{" not in script  # would be replaced by Actions
        return subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script], cwd=workspace,
                              env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)

    def use(self, action, inputs, workspace):
        path = workspace / inputs.get("path", "")
        if action == "actions/cache/save@v4":
            shutil.copytree(path, self.cache)
        elif action == "actions/cache/restore@v4":
            if self.cache.exists():
                shutil.copytree(self.cache, path)
        elif action == "actions/upload-artifact@v4":
            shutil.rmtree(self.artefacts, ignore_errors=True)
            if path.exists():
                shutil.copytree(path, self.artefacts)
        else:
            assert action == "actions/checkout@v4"

    def job(self, event, workspace):
        """Runs the workflow; returns the exit codes of its shell steps by name."""
        (self.folder / "summary.md").write_text("")
        codes = {}
        for step in STEPS:
            measured = (workspace / "flashbench/gate.json").exists()
            if not CONDITIONS[step.get("if")](event, any(codes.values()), measured):
                continue
            if "uses" in step:
                self.use(step["uses"], step.get("with", {}), workspace)
            else:
                process = self.shell(step["run"], workspace)
                codes[step["name"]] = process.returncode
                print(step["name"], process.returncode, process.stdout, process.stderr)
        return codes

    def summary(self):
        return (self.folder / "summary.md").read_text()

    def verdicts(self):
        return [row["verdict"] for row in json.loads((self.artefacts / "comparison.json").read_text())["rows"]]


@pytest.fixture
def runner(binary, tmp_path):
    return Runner(binary, tmp_path)


@pytest.fixture
def with_baseline(runner):
    assert runner.job("push", runner.workspace()) == {"Build the kernel": 0, "Save the baseline": 0}
    return runner


MEASURE, COMPARE = "Measure the change", "Compare with the baseline"


def test_a_slower_change_fails_with_a_summary_and_artefacts(with_baseline):
    assert with_baseline.job("pull_request", with_baseline.workspace(slow)) == {"Build the kernel": 0, MEASURE: 0, COMPARE: 1}
    assert with_baseline.verdicts() == ["SLOWER"]
    assert with_baseline.summary().startswith("# Comparison") and "SLOWER" in with_baseline.summary()
    assert (with_baseline.artefacts / "comparison.html").read_text().startswith("<!doctype html>")
    assert {"gate.json", "gate.csv", "gate.md", "baselines"} <= {path.name for path in with_baseline.artefacts.iterdir()}


def test_no_change_passes(with_baseline):
    codes = with_baseline.job("pull_request", with_baseline.workspace())
    assert "NEWLY_WRONG" not in with_baseline.verdicts()
    assert codes == {"Build the kernel": 0, MEASURE: 0, COMPARE: int("SLOWER" in with_baseline.verdicts())}  # a busy machine


@pytest.mark.parametrize("change, code", [(wrong, 3), (crashing, 4)])
def test_a_wrong_change_fails_and_is_compared_all_the_same(with_baseline, change, code):
    codes = with_baseline.job("pull_request", with_baseline.workspace(change))
    assert codes == {"Build the kernel": 0, MEASURE: code, COMPARE: 1}
    assert with_baseline.verdicts() == ["NEWLY_WRONG"]
    assert "NEWLY_WRONG" in with_baseline.summary()


def test_a_missing_baseline_is_no_pass(runner):
    assert runner.job("pull_request", runner.workspace()) == {"Build the kernel": 0, MEASURE: 5}


def test_a_kernel_that_does_not_compile_is_not_measured(with_baseline):
    assert with_baseline.job("pull_request", with_baseline.workspace(lambda source: source + "?")) == {"Build the kernel": 1}


def test_a_wrong_kernel_becomes_no_baseline(runner):
    assert runner.job("push", runner.workspace(wrong)) == {"Build the kernel": 0, "Save the baseline": 3}
    assert not runner.cache.exists()


def test_the_cache_is_kept_and_fetched_by_the_same_path_and_key():
    save, restore = [step["with"] for step in STEPS if step.get("uses", "").startswith("actions/cache/")]
    assert save["path"] == restore["path"]
    assert save["key"].startswith(restore["restore-keys"]) and restore["key"].startswith(restore["restore-keys"])


def test_both_sides_on_one_runner_as_the_page_says(runner):
    script, = re.findall(r"```\n(git worktree .*?)```", (REPOSITORY / "docs/ci.md").read_text(), re.DOTALL)
    origin, change = runner.workspace(), runner.folder / "change"

    def git(*words, cwd=runner.folder):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=cwd, check=True, capture_output=True)

    git("init", "-b", "main", cwd=origin)
    git("add", ".", cwd=origin)
    git("commit", "-m", "a kernel", cwd=origin)
    git("clone", str(origin), str(change))
    (change / "plugin.c").write_text(slow((change / "plugin.c").read_text()))
    process = runner.shell(script, change)
    assert process.returncode == 0, process.stderr
    compare, = [step for step in STEPS if step.get("name") == COMPARE]
    assert runner.shell(compare["run"], change).returncode == 1
    assert "1 rows: 1 SLOWER" in runner.summary()
