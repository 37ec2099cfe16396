"""A sweep in shards: by hand, and by the scripts for Slurm as local processes; killed, resumed, joined."""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from conftest import REPOSITORY, TINY
from test_survive import LONG, lines, wait_until

SCRIPTS = REPOSITORY / "examples/cluster"
CASES = {**TINY, "cases": [{"pass": ["forward", "backward"], "seq": [16, 17, 33, 40], "q_heads": 2, "head_dim": 16}]}
SHARDS = 3


def document(path):
    return json.loads(path.read_text())


def rows(text):
    return [(row["key"], row["provider"]) for row in json.loads(text)["results"]]


def sweep(tool, shard, *more, config=CASES, **options):
    return tool("sweep", "--no-ceilings", "--quiet", "--config", tool.config(config), "--out", "out", "--shard", shard, *more,
                **options)


@pytest.fixture(scope="module")
def whole(binary, tmp_path_factory):
    """The rows of one sweep of all cases."""
    from conftest import Flashbench

    tool = Flashbench(binary, tmp_path_factory.mktemp("whole"))
    tool("sweep", "--no-ceilings", "--config", tool.config(CASES), "--out", "out", "--quiet")
    return rows((tool.folder / "out/tiny.json").read_text())


@pytest.fixture(scope="module")
def finished(binary, tmp_path_factory):
    """A folder with all shards of a sweep."""
    from conftest import Flashbench

    tool = Flashbench(binary, tmp_path_factory.mktemp("finished"))
    for number in range(1, SHARDS + 1):
        sweep(tool, f"{number}/{SHARDS}")
    return tool.folder / "out"


@pytest.fixture
def shards(finished, tmp_path):
    """A copy of that folder, to damage."""
    return shutil.copytree(finished, tmp_path / "shards")


def shard_file(folder, number, count=SHARDS):
    return folder / f"tiny.shard-{number}-of-{count}.json"


def change(path, edit):
    content = document(path)
    edit(content)
    path.write_text(json.dumps(content))


# ---- shards


def test_each_shard_has_its_own_files(finished):
    names = {f"tiny.shard-{number}-of-{SHARDS}.{kind}" for number in range(1, SHARDS + 1) for kind in ("json", "csv", "md")}
    assert {path.name for path in finished.iterdir()} == names


def test_shards_together_have_each_row_once(finished, whole):
    found = [row for number in range(1, SHARDS + 1) for row in rows(shard_file(finished, number).read_text())]
    assert sorted(found) == sorted(whole) and len(set(found)) == len(found)


def test_the_order_of_the_config_changes_no_shard(finished, flashbench):
    reordered = {**CASES, "cases": [{**CASES["cases"][0], "pass": ["backward", "forward"], "seq": [40, 33, 17, 16]}]}
    sweep(flashbench, f"1/{SHARDS}", config=reordered)
    assert sorted(rows(shard_file(flashbench.folder / "out", 1).read_text())) == sorted(rows(shard_file(finished, 1).read_text()))


def test_a_dry_run_shows_the_cases_of_the_shard(finished, flashbench):
    listed = [sweep(flashbench, f"{number}/{SHARDS}", "--dry-run").stdout.count("  forward") for number in range(1, SHARDS + 1)]
    assert sum(listed) == 4


def test_more_shards_than_cases_leave_some_empty_and_join(flashbench):
    one = {**TINY, "cases": [{"seq": [16, 33], "q_heads": 2, "head_dim": 16}]}
    for number in range(1, 5):
        sweep(flashbench, f"{number}/4", config=one)
    assert len(rows(flashbench("report", "out", "--format", "json").stdout)) == 2 * 2


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/0", "a/b", "1/3/3", ""])
def test_a_shard_that_is_none_is_refused(flashbench, text):
    process = sweep(flashbench, text, expect=2)
    assert "--shard" in process.stderr
    assert not (flashbench.folder / "out").exists()


# ---- joined


def test_a_join_has_the_rows_of_one_sweep_in_its_order(finished, whole, flashbench):
    files = [shard_file(finished, number) for number in (2, 3, 1)]
    for given in ([finished], files):
        assert rows(flashbench("report", *given, "--format", "json").stdout) == whole
    report = flashbench("report", finished, "--filter", "pass=forward").stdout
    assert "x naive" in report and "8 rows: 8 ok" in report
    assert "<html" in flashbench("report", finished, "--format", "html").stdout


def test_a_join_is_a_result_like_any_other(finished, flashbench):
    flashbench("report", finished, "--format", "json", "--out", "joined.json")
    again = flashbench("report", "joined.json", "--format", "json").stdout
    assert again == (flashbench.folder / "joined.json").read_text()
    meta = json.loads(again)["meta"]
    assert "shard" not in meta and [shard["file"] for shard in meta["shards"]] == [
        str(shard_file(finished, number)) for number in range(1, SHARDS + 1)]
    for row in json.loads(again)["results"]:
        assert row["performance"]["speedup_vs_naive"] is not None


def test_shards_compare_as_one_result(finished, flashbench):
    flashbench("report", finished, "--format", "json", "--out", "joined.json")
    for sides in ([finished, finished], [finished, "joined.json"], ["joined.json", finished]):
        comparison = json.loads(flashbench("compare", *sides, "--json", "-").stdout)
        assert len(comparison["rows"]) == 16
        assert not {"NEW", "MISSING"} & {row["verdict"] for row in comparison["rows"]}


def test_a_shard_is_compared_with_its_part_of_a_baseline(finished, flashbench):
    flashbench("report", finished, "--format", "json", "--out", "joined.json")
    for baseline in ("./joined.json", f"{finished}/"):
        process = sweep(flashbench, f"2/{SHARDS}", "--baseline", baseline)
        assert "MISSING" not in process.stdout and "NEW" not in process.stdout


def test_each_shard_saves_a_baseline_of_its_own(flashbench):
    for number in range(1, SHARDS + 1):
        sweep(flashbench, f"{number}/{SHARDS}", "--save-baseline", "main")
        sweep(flashbench, f"{number}/{SHARDS}", "--baseline", "main")
    baselines = flashbench.folder / "out/baselines"
    assert {path.name for path in baselines.iterdir()} == {f"main.shard-{n}-of-{SHARDS}.json" for n in range(1, SHARDS + 1)}
    assert len(rows(flashbench("report", baselines, "--format", "json").stdout)) == 16


def test_compressed_shards_join(shards, whole, flashbench):
    path = shard_file(shards, 2)
    path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert rows(flashbench("report", shards, "--format", "json").stdout) == whole


def test_one_shard_alone_says_so(finished, flashbench):
    report = flashbench("report", shard_file(finished, 2)).stdout
    assert re.search(rf"shard 2/{SHARDS} of a sweep: \d of its 8 cases", report)


# ---- what does not belong together


def refused(tool, *files, code):
    outputs = [tool("report", *files, "--out", "joined.txt", expect=code).stderr]
    if len(files) == 1:
        outputs.append(tool("compare", *files, *files, expect=code).stderr)
    assert not (tool.folder / "joined.txt").exists()
    assert len({text.replace("baseline ", "") for text in outputs}) == 1
    return outputs[0]


@pytest.mark.parametrize("edit, said", [
    (lambda result: result["devices"][0].update(name="Another CPU"), '/device/name: "'),
    (lambda result: result["devices"][0].update(threads=99), "99 here"),
    (lambda result: result["meta"].update(git_commit="abc"), '"abc" here'),
    (lambda result: result["meta"].update(compiler="another"), '"another" here'),
    (lambda result: result["config"]["measure"].update(max_samples=7), "/config/measure/max_samples: 3 there, 7 here"),
    (lambda result: result["config"]["cases"][0]["seq"].append(50), "/config/cases/0/seq/4: nothing there, 50 here"),
    (lambda result: result["meta"]["shard"]["sweep"]["providers"].append("x"), '/sweep/providers/2: nothing there, "x" here'),
])
def test_shards_of_another_sweep_are_refused(shards, flashbench, edit, said):
    change(shard_file(shards, 2), edit)
    stderr = refused(flashbench, shards, code=5)
    assert said in stderr and shard_file(shards, 1).name in stderr and shard_file(shards, 2).name in stderr


def test_a_missing_shard_is_refused(shards, flashbench):
    shard_file(shards, 2).unlink()
    assert "expected all 3 shards of the sweep; one is missing: 2" in refused(flashbench, shards, code=2)


def test_a_shard_twice_is_refused(shards, flashbench):
    shutil.copy(shard_file(shards, 2), shards / "again.shard-2-of-3.json")
    assert "are both shard 2/3" in refused(flashbench, shards, code=2)


def test_shards_of_two_divisions_are_refused(shards, flashbench):
    sweep(flashbench, "1/4")
    shutil.copy(shard_file(flashbench.folder / "out", 1, 4), shards)
    assert "/shards: 3 there, 4 here" in refused(flashbench, shards, code=5)


def test_overlapping_rows_are_refused(shards, flashbench):
    row = document(shard_file(shards, 1))["results"][0]
    change(shard_file(shards, 2), lambda result: result["results"].append(row))
    assert f"has a case of another shard: {row['key']}" in refused(flashbench, shards, code=2)


def test_rows_that_are_missing_are_refused(shards, flashbench):
    change(shard_file(shards, 2), lambda result: result["results"].clear())
    assert "shard 2/3 has 0 of its" in refused(flashbench, shards, code=2)


def test_rows_of_a_provider_that_are_missing_are_refused(shards, flashbench):
    provider = document(shard_file(shards, 2))["results"][0]["provider"]
    change(shard_file(shards, 2), lambda result: result.update(
        results=[row for row in result["results"] if row["provider"] != provider]))
    assert "shard 2/3 " in refused(flashbench, shards, code=2)


def test_rows_of_another_provider_are_refused(shards, flashbench):
    row = {**document(shard_file(shards, 2))["results"][0], "provider": "wonder"}
    change(shard_file(shards, 2), lambda result: result["results"].append(row))
    assert "found one of wonder" in refused(flashbench, shards, code=2)


def test_more_cases_than_a_config_can_have_are_refused(shards, flashbench):
    for number in (1, 2, 3):
        change(shard_file(shards, number), lambda result: result["meta"]["shard"]["sweep"].update(cases=2**62))
    said = "/meta/shard/sweep/cases: expected from 1 to 20000, found 4611686018427387904"
    assert said in flashbench("report", shards, expect=7).stderr


def test_a_damaged_shard_is_refused(shards, flashbench):
    change(shard_file(shards, 2), lambda result: result["meta"]["shard"].update(number=7))
    stderr = flashbench("report", shards, expect=7).stderr
    assert "/meta/shard/number: expected from 1 to the count of shards, found 7" in stderr
    assert shard_file(shards, 2).name in stderr


def test_a_folder_without_shards_is_refused(flashbench):
    (flashbench.folder / "empty").mkdir()
    assert "expected the results of shards" in flashbench("report", "empty", expect=7).stderr


# ---- the scripts, as local processes


class Cluster:
    """Starts the scripts as Slurm would: a process for each task, told by variables which one it is."""

    def __init__(self, flashbench):
        self.tool = flashbench
        self.folder = flashbench.folder / "out"

    def start(self, script, number, *arguments, config=CASES, count=SHARDS, **environment):
        path = self.tool.folder / "config.json"
        if not path.exists():  # other tasks may be reading it
            path.write_text(json.dumps(config))
        options = ["--no-ceilings", "--quiet", "--config", path, "--out", "out", *arguments]
        if script == "array.sbatch":
            task = {"SLURM_ARRAY_TASK_ID": str(number)}
            options.insert(0, str(count))
        else:
            task = {"SLURM_PROCID": str(number - 1), "SLURM_NTASKS": str(count)}
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        return subprocess.Popen([SCRIPTS / script, *options], cwd=self.tool.folder, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**clean, "FLASHBENCH": str(self.tool.binary), **task, **environment})

    def run(self, script, *arguments, config=CASES, numbers=range(1, SHARDS + 1)):
        """Runs the tasks at the same time; returns what each wrote to standard output."""
        tasks = [self.start(script, number, *arguments, config=config) for number in numbers]
        said = [task.communicate(timeout=300) for task in tasks]
        assert [task.returncode for task in tasks] == [0] * len(tasks), said
        return [out for out, _ in said]

    def journal(self, number):
        return self.folder / f"tiny.shard-{number}-of-{SHARDS}.journal"


def fullest_shard(tool):
    """The number of the shard with the most cases: more than one, so that it can be killed in between."""
    def cases(number):
        return len(sweep(tool, f"{number}/{SHARDS}", "--dry-run").stdout.splitlines())

    number = max(range(1, SHARDS + 1), key=cases)
    (tool.folder / "config.json").unlink()
    return number


@pytest.fixture
def cluster(flashbench):
    return Cluster(flashbench)


@pytest.mark.parametrize("script", ["array.sbatch", "srun.sh"])
def test_tasks_killed_and_resumed_join_to_the_rows_of_one_sweep(cluster, whole, script):
    slow = ["--set", "/measure/max_seconds=0.3", "--set", "/measure/max_samples=100000",
            "--set", "/measure/target_ci_width=1e-9"]
    number = fullest_shard(cluster.tool)
    task = cluster.start(script, number, *slow)
    wait_until(lambda: lines(cluster.journal(number)) >= 2)
    task.kill()
    task.communicate()
    measured = [json.loads(line) for line in cluster.journal(number).read_text().splitlines()[1:]]
    assert task.returncode == -signal.SIGKILL and measured

    cluster.run(script, *slow)
    joined = json.loads(cluster.tool("report", "out", "--format", "json").stdout)
    assert [(row["key"], row["provider"]) for row in joined["results"]] == whole
    rows_now = {(row["key"], row["provider"]): row for row in joined["results"]}
    for record in measured[0]["records"]:  # of the killed task, not measured again
        assert rows_now[record["key"], record["provider"]]["performance"]["median_ms"] == record["performance"]["median_ms"]
    assert not list(cluster.folder.glob("*.journal"))


def test_tasks_that_have_finished_measure_nothing_again(cluster):
    cluster.run("array.sbatch")
    before = {path: path.read_bytes() for path in cluster.folder.iterdir()}
    said = cluster.run("array.sbatch")
    assert all(f"shard {number}/{SHARDS} is finished" in text for number, text in enumerate(said, 1))
    assert {path: path.read_bytes() for path in cluster.folder.iterdir()} == before


def test_a_finished_shard_of_another_config_is_not_replaced(cluster):
    cluster.run("array.sbatch", numbers=[1])
    task = cluster.start("array.sbatch", 1, "--max-samples", "4")
    _, stderr = task.communicate(timeout=300)
    assert task.returncode == 2
    assert "this result is of another sweep" in stderr and "/sweep/options/measure/max_samples: 3 there, 4 now" in stderr


def test_one_task_of_an_array_runs_its_shard_alone(cluster, whole):
    cluster.run("array.sbatch", numbers=[1, 3])
    assert "missing: 2" in cluster.tool("report", "out", expect=2).stderr
    cluster.run("array.sbatch", numbers=[2])
    assert rows(cluster.tool("report", "out", "--format", "json").stdout) == whole


def test_the_signal_before_the_time_limit_keeps_the_journal(cluster):
    number = fullest_shard(cluster.tool)
    task = cluster.start("array.sbatch", number, config={**CASES, **LONG})
    wait_until(lambda: lines(cluster.journal(number)) >= 1)
    task.send_signal(signal.SIGTERM)
    _, stderr = task.communicate(timeout=120)
    assert task.returncode == 143 and "--resume continues" in stderr
    assert cluster.journal(number).exists()


def test_a_wrong_row_fails_its_task_and_joins(cluster, plugins):
    codes = []
    for number in range(1, SHARDS + 1):
        task = cluster.start("array.sbatch", number, "--plugin", plugins / "faulty.so", FLASHBENCH_FAULT="nan@q33")
        task.communicate(timeout=300)
        codes.append(task.returncode)
    assert 3 in codes and set(codes) <= {0, 3}
    joined = json.loads(cluster.tool("report", "out", "--format", "json").stdout)
    assert [row["status"] for row in joined["results"]].count("failed") == 2


@pytest.mark.parametrize("script, missing", [("array.sbatch", "SLURM_ARRAY_TASK_ID"), ("srun.sh", "SLURM_PROCID")])
def test_outside_slurm_a_script_says_how_to_start_it(flashbench, script, missing):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    process = subprocess.run([SCRIPTS / script, "3", "--config", "quick"], env={**clean, "FLASHBENCH": str(flashbench.binary)},
                             cwd=flashbench.folder, capture_output=True, text=True)
    assert process.returncode != 0 and missing in process.stderr
    assert list(flashbench.folder.iterdir()) == []


def test_an_array_without_the_number_of_shards_is_refused(flashbench):
    process = subprocess.run([SCRIPTS / "array.sbatch", "--config", "quick"], cwd=flashbench.folder, capture_output=True,
                             env={**os.environ, "SLURM_ARRAY_TASK_ID": "1", "FLASHBENCH": str(flashbench.binary)}, text=True)
    assert process.returncode == 2 and "usage: sbatch" in process.stderr
