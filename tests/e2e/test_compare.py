"""Comparisons of results, and sweeps with a baseline: verdicts, exit codes, baselines by name."""

import gzip
import importlib.util
import json
import os

import pytest
from conftest import REPOSITORY, Flashbench

CONFIG = {
    "schema_version": 1,
    "name": "gate",
    "device": "cpu",
    "threads": 1,  # on a busy machine, threads wait for each other
    "providers": ["plugin:faulty"],
    "measure": {"warmup_runs": 1, "warmup_seconds": 0, "min_samples": 40, "max_samples": 40,
                "max_seconds": 1},
    "cases": [{"pass": ["forward", "backward"], "seq": 24, "q_heads": 1, "head_dim": 32}],
}
# Thirty times as long: beyond doubt on the busiest machine, if samples end within a time slice.
SLOW = "slow=29"


def fault(text):
    return {"env": {**os.environ, "FLASHBENCH_FAULT": text}}


def sweep(tool, *arguments, kind="slow=0", **options):
    return tool("sweep", "--config", tool.config(CONFIG), "--quiet", "--no-ceilings", *arguments,
                **fault(kind), **options)


def compared(tool, base, new, *arguments, **options):
    process = tool("compare", base, new, "--json", "-", *arguments, **options)
    return json.loads(process.stdout)


def verdicts(comparison):
    return [row["verdict"] for row in comparison["rows"]]


@pytest.fixture(scope="module")
def results(binary, plugins, tmp_path_factory):
    """The result files of sweeps of the same cases, plain and with faults."""
    tool = Flashbench(binary, tmp_path_factory.mktemp("gate"), plugins / "faulty.so")
    files = {}
    for name, kind, code in [("plain", "slow=0", 0), ("slow", SLOW, 0),
                             ("wrong", "nan@forward", 3)]:
        sweep(tool, "--out", name, kind=kind, expect=code)
        files[name] = tool.folder / name / "gate.json"
    return files


@pytest.fixture
def changed(results, flashbench):
    """Writes the plain result with a change, and returns its path."""

    def write(change):
        document = json.loads(results["plain"].read_text())
        change(document)
        path = flashbench.folder / "changed.json"
        path.write_text(json.dumps(document))
        return path

    return write


# ---- verdicts


def test_a_result_is_like_itself(results, flashbench):
    comparison = compared(flashbench, results["plain"], results["plain"], "--fail-on-regression")
    assert not comparison["regressed"]
    assert set(verdicts(comparison)) <= {"SAME", "INCONCLUSIVE"}
    assert [row["ratio"] for row in comparison["rows"]] == [1, 1]


def test_a_planted_slow_down_is_found(results, flashbench):
    comparison = compared(flashbench, results["plain"], results["slow"])
    assert verdicts(comparison) == ["SLOWER", "SLOWER"]
    assert all(row["ratio"] > 10 for row in comparison["rows"])
    assert comparison["regressed"]
    back = compared(flashbench, results["slow"], results["plain"], "--fail-on-regression")
    assert verdicts(back) == ["FASTER", "FASTER"]


def test_a_row_that_no_longer_verifies_is_newly_wrong(results, flashbench):
    comparison = compared(flashbench, results["plain"], results["wrong"])
    by_pass = {row["case"]["pass"]: row for row in comparison["rows"]}
    assert by_pass["forward"]["verdict"] == "NEWLY_WRONG"
    assert by_pass["forward"]["reason"].startswith("failed: ")
    assert by_pass["backward"]["verdict"] != "NEWLY_WRONG"
    back = compared(flashbench, results["wrong"], results["plain"])
    assert {row["case"]["pass"]: row["verdict"] for row in back["rows"]}["forward"] == "FIXED"


def test_rows_of_one_side_are_new_or_missing(results, flashbench):
    half = "half.json"
    flashbench("report", results["plain"], "--filter", "pass=backward", "--format", "json", "--out", half)
    assert "NEW" in verdicts(compared(flashbench, half, results["plain"]))
    assert "MISSING" in verdicts(compared(flashbench, results["plain"], half))
    filtered = compared(flashbench, results["plain"], half, "--filter", "pass=backward")
    assert len(filtered["rows"]) == 1


def test_too_few_samples_are_inconclusive(results, changed, flashbench):
    def drop_samples(document):
        for row in document["results"]:
            measured = row["performance"]["measurement"]
            del measured["samples_s"][7:]
            measured.pop("cores", None)

    comparison = compared(flashbench, changed(drop_samples), results["slow"],
                          "--fail-on-regression")
    assert verdicts(comparison) == ["INCONCLUSIVE", "INCONCLUSIVE"]
    assert comparison["rows"][0]["reason"].startswith("too few samples: 7 and ")


# ---- exit codes and output


@pytest.mark.parametrize("new", ["slow", "wrong"])
def test_only_a_regression_fails_and_only_if_asked(results, flashbench, new):
    forward = ["--filter", "pass=forward"]
    flashbench("compare", results["plain"], results[new], *forward, "--fail-on-regression",
               expect=1)
    flashbench("compare", results["plain"], results[new], *forward)
    flashbench("compare", results[new], results["plain"], *forward, "--fail-on-regression")


@pytest.mark.parametrize(
    "factor, threshold, code", [(1.9, "95%", 0), (1.9, "0.95", 0), (20, "95%", 1)])
def test_changes_up_to_the_threshold_pass(results, changed, flashbench, factor, threshold, code):
    def scale(document):
        for row in document["results"]:
            measured = row["performance"]["measurement"]
            for times in [measured, measured.get("cores", {})]:
                times.update({name: [factor * time for time in values]
                              for name, values in times.items() if name.endswith("_s")})

    flashbench("compare", results["plain"], changed(scale), "--fail-on-regression",
               "--noise-threshold", threshold, expect=code)


def test_every_output(results, flashbench):
    command = ["compare", results["plain"], results["slow"]]
    table = flashbench(*command).stdout
    assert "2 rows: 2 SLOWER" in table
    assert max(len(line) for line in table.splitlines() if "gate.json" not in line) <= 100
    markdown = flashbench(*command, "--format", "md").stdout
    assert "| case | provider |" in markdown
    document = json.loads(flashbench(*command, "-f", "json").stdout)
    assert document["comparison_schema_version"] == 1
    assert flashbench(*command, "--json", "c.json", "--md", "c.md").stdout == table
    assert json.loads((flashbench.folder / "c.json").read_text()) == document
    assert (flashbench.folder / "c.md").read_text() == markdown


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--noise-threshold", "much"], "1%"),
        (["--noise-threshold", "2"], "1%"),
        (["--noise-threshold", "-1%"], "1%"),
        (["--allow-different", "compilr"], 'did you mean "compiler"?'),
        (["--filter", "lenght=1"], "lenght"),
    ],
)
def test_usage(results, flashbench, arguments, said):
    process = flashbench("compare", results["plain"], results["plain"], *arguments, expect=2)
    assert said in process.stderr
    assert process.stdout == ""


# ---- unusable baselines: 5


def set_threads(document):
    document["devices"][0]["threads"] = 977


def set_schema(document):
    document["schema_version"] = 99


def double_row(document):
    document["results"].append(document["results"][0])


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "expected an object"),
        ("{}", "/schema_version: missing"),
        ("[" * 100000, "nested deeper"),
        ('{"schema_version": 1e999}', "range of fp64"),
    ],
    ids=range(6),
)
def test_a_corrupt_baseline(results, flashbench, text, said):
    (flashbench.folder / "bad.json").write_text(text)
    for arguments, code in [(["bad.json", results["plain"]], 5), ([results["plain"], "bad.json"], 7)]:
        process = flashbench("compare", *arguments, expect=code)
        assert "bad.json" in process.stderr and said in process.stderr
        assert process.stdout == ""


def test_compressed_results_are_compared_as_others_are(results, flashbench):
    compressed = flashbench.folder / "plain.json.gz"
    compressed.write_bytes(gzip.compress(results["plain"].read_bytes()))
    document = json.loads(flashbench("compare", compressed, results["plain"], "-f", "json").stdout)
    assert document["counts"] == json.loads(flashbench("compare", results["plain"], results["plain"], "-f", "json").stdout)["counts"]


@pytest.mark.parametrize(
    "damage, said",
    [
        (lambda data: data[:-1], "cut off"),
        (lambda data: data[: len(data) // 2], "cut off"),
        (lambda data: data[:-8] + bytes(4) + data[-4:], "incorrect data check"),
        (lambda data: data + b"more", "incorrect header"),
        (lambda data: gzip.compress(b"{}"), "/schema_version: missing"),
    ],
    ids=range(5),
)
def test_a_damaged_compressed_result(results, flashbench, damage, said):
    (flashbench.folder / "bad.json.gz").write_bytes(damage(gzip.compress(results["plain"].read_bytes())))
    for arguments, code in [(["compare", "bad.json.gz", results["plain"]], 5),
                            (["compare", results["plain"], "bad.json.gz"], 7), (["report", "bad.json.gz"], 7)]:
        process = flashbench(*arguments, expect=code)
        assert "bad.json.gz" in process.stderr and said in process.stderr
        assert process.stdout == ""


@pytest.mark.parametrize("change", [
    lambda result: result["results"][0].update(status="failed"),
    lambda result: result["results"][0]["correctness"].update(status="not_checked"),
    lambda result: result["results"][0]["correctness"].update(tensors=[]),
])
def test_a_time_without_verified_outputs_is_refused(results, changed, flashbench, change):
    bad = changed(change)
    for arguments, code in [(["compare", bad, results["plain"]], 5), (["compare", results["plain"], bad], 7),
                            (["report", bad], 7)]:
        process = flashbench(*arguments, expect=code)
        assert "/results/0: /" in process.stderr and "expected" in process.stderr and process.stdout == ""


def test_a_result_without_a_row_of_its_sweep_is_refused(results, changed, flashbench):
    bad = changed(lambda result: result["results"].pop())
    for arguments, code in [(["compare", bad, results["plain"]], 5), (["compare", results["plain"], bad], 7),
                            (["report", bad], 7)]:
        process = flashbench(*arguments, expect=code)
        assert str(bad) in process.stderr and process.stdout == ""
        assert "/results: expected the rows of 2 cases, as /meta/sweep has them, found 1" in process.stderr


def test_no_text_of_a_result_changes_the_terminal(results, changed, flashbench):
    def color(result):
        result["meta"].update(version="1\x1b[31m", started="\x07now\x9b31m")
        result["results"][0]["correctness"]["reason"] = "\x1b[2J"

    outputs = [flashbench("compare", results["plain"], changed(color)).stdout,
               flashbench("report", changed(color), "--format", "md").stdout,
               flashbench("report", changed(lambda result: result["results"][0].update(status="\x1b[31m")), expect=7).stderr]
    assert "1?[31m" in outputs[0] and "?now?31m" in outputs[1]
    assert not any(character in text for text in outputs for character in "\x1b\x07\x9b")


def test_a_missing_baseline(results, flashbench):
    assert "no.json" in flashbench("compare", "no.json", results["plain"], expect=5).stderr
    assert "no.json" in flashbench("compare", results["plain"], "no.json", expect=7).stderr


@pytest.mark.parametrize(
    "change, said",
    [(set_schema, "expected 1, found 99"), (double_row, "the same case and provider")])
def test_a_foreign_baseline(results, changed, flashbench, change, said):
    process = flashbench("compare", changed(change), results["plain"], expect=5)
    assert said in process.stderr


def test_a_baseline_that_is_not_comparable(results, changed, flashbench):
    base = changed(set_threads)
    process = flashbench("compare", base, results["plain"], expect=5)
    assert 'threads: "977" in the baseline' in process.stderr
    comparison = compared(flashbench, base, results["plain"], "--allow-different", "threads")
    assert [difference["key"] for difference in comparison["differences"]] == ["threads"]


def test_nothing_in_common(results, flashbench):
    process = flashbench("compare", results["plain"], results["plain"], "--filter", "seq=4096",
                         expect=5)
    assert "no case and provider in common" in process.stderr


# ---- sweeps with a baseline


def test_a_sweep_saves_and_uses_named_baselines(with_faults):
    folder = with_faults.folder / "out"
    said = sweep(with_faults, "--out", "out", "--save-baseline", "main").stdout
    saved = folder / "baselines/main.json"
    assert "out/baselines/main.json" in said
    assert saved.read_text() == (folder / "gate.json").read_text()

    gated = ["--out", "out", "--baseline", "main", "--fail-on-regression"]
    slow = sweep(with_faults, *gated, "--save-baseline", "main", kind=SLOW, expect=1)
    assert "2 rows: 2 SLOWER" in slow.stdout
    assert "not saved" in slow.stderr
    assert saved.read_text() != (folder / "gate.json").read_text()  # the gate stays shut

    # The worst outcome counts: a failed verification takes precedence over a regression.
    wrong = sweep(with_faults, *gated, kind="nan@forward", expect=3)
    assert "NEWLY_WRONG" in wrong.stdout

    # Cases that the filter leaves out are not missing.
    half = sweep(with_faults, *gated[:-1], "--filter", "pass=backward")
    assert "1 rows: " in half.stdout and "MISSING" not in half.stdout


def test_a_result_with_rows_that_did_not_end_well_is_no_baseline(with_faults):
    for kind, code in [("nan@forward", 3), ("error@backward", 4)]:
        process = sweep(with_faults, "--out", "out", "--save-baseline", "main", kind=kind,
                        expect=code)
        assert "not saved as baseline main: not all rows are ok" in process.stderr
        assert not (with_faults.folder / "out/baselines/main.json").exists()


def test_a_sweep_takes_a_file_as_baseline(results, with_faults):
    sweep(with_faults, "--out", "out", "--baseline", results["plain"], "--fail-on-regression",
          kind=SLOW, expect=1)


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        (["--baseline", "main"], 5,
         "out/baselines/main.json: there is no such file; --save-baseline main writes it"),
        (["--baseline", "no.json"], 5, "no.json"),
        (["--baseline", "{other}"], 5, "threads"),
        (["--baseline", "{plain}", "--filter", "pass=forward", "--set", "/cases/0/seq=32"], 5,
         "none of the cases"),
        (["--baseline", "../main x"], 5, "cannot read"),
        (["--baseline", "ma in"], 2, "a baseline's name"),
        (["--save-baseline", "a/b"], 2, "a baseline's name"),
        (["--fail-on-regression"], 2, "--baseline"),
        (["--baseline", "{plain}", "--allow-different", "thread"], 2, "threads"),
        (["--baseline", "{plain}", "--cache", "cold"], 5, "cache"),
    ],
)
def test_what_is_wrong_with_a_baseline_is_said_before_the_sweep(results, changed, with_faults,
                                                                arguments, code, said):
    names = {"plain": results["plain"], "other": changed(set_threads)}
    arguments = [argument.format(**names) for argument in arguments]
    process = sweep(with_faults, "--out", "out", *arguments, expect=code)
    assert said in process.stderr
    assert not (with_faults.folder / "out").exists()


# ---- --until-conclusive


def test_undecided_cases_are_measured_on(with_faults):
    few = {**CONFIG, "measure": {**CONFIG["measure"], "min_samples": 4, "max_samples": 4}}
    command = ["sweep", "--config", with_faults.config(few), "--quiet", "--no-ceilings"]
    with_faults(*command, "--repetitions", "3", "--save-baseline", "main", **fault("slow=0"))
    process = with_faults(*command, "--baseline", "main", "--until-conclusive", "60",
                          **fault(SLOW))
    result = json.loads((with_faults.folder / "results/gate/gate.json").read_text())
    for row in result["results"]:  # 4 samples are too few, 8 are enough
        assert len(row["performance"]["measurement"]["samples_per_process"]) >= 2
    assert "too few samples:" not in process.stdout


def test_no_time_to_measure_on_leaves_rows_undecided(with_faults):
    few = {**CONFIG, "measure": {**CONFIG["measure"], "min_samples": 4, "max_samples": 4}}
    command = ["sweep", "--config", with_faults.config(few), "--quiet", "--no-ceilings"]
    with_faults(*command, "--save-baseline", "main", **fault("slow=0"))
    process = with_faults(*command, "--baseline", "main", "--until-conclusive", "0",
                          **fault("slow=0"))
    assert "still undecided after 0 s more: 2 of 2 rows" in process.stdout
    assert "to decide it: more --repetitions, or a larger --timeout" in process.stdout


def test_until_conclusive_needs_a_baseline(with_faults):
    sweep(with_faults, "--until-conclusive", "5", expect=2)


# ---- scripts/gate_trials.py


@pytest.fixture(scope="module")
def trials():
    spec = importlib.util.spec_from_file_location("gate_trials",
                                                  REPOSITORY / "scripts/gate_trials.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_clopper_pearson_matches_the_tables(trials):
    for (hits, trials_, low, high) in [(0, 200, 0, 0.018275), (10, 20, 0.271957, 0.728043),
                                       (1, 200, 0.000127, 0.027542), (5, 5, 0.478176, 1)]:
        assert trials.clopper_pearson(hits, trials_) == pytest.approx((low, high), abs=1e-6)


def test_trials_go_on_and_are_judged_into_the_docs(trials, binary, plugins, tmp_path, monkeypatch,
                                                   capsys):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    docs = tmp_path / "docs.md"
    docs.write_text("before\n{}\nan earlier table\n{}\nafter\n".format(*trials.MARKERS))
    out = tmp_path / "trials"
    how = ["--out", str(out), "--binary", str(binary)]
    # One step each: after 0 seconds no further one begins.
    run = ["run", *how, "--plugin", str(plugins / "faulty.so"), "--config", str(config),
           "--repetitions", "2", "--sizes", "2900", "--seconds", "0"]

    def call(*arguments):
        monkeypatch.setattr("sys.argv", ["gate_trials.py", *arguments])
        trials.main()

    call(*run)
    first = {path: path.stat().st_mtime_ns for path in out.rglob("gate.json")}
    assert {path.parent.name for path in first} == {"unchanged", "slower_by_2900"}
    with pytest.raises(SystemExit, match="has 1 steps; judging needs 2"):
        call("judge", *how)
    call(*run)
    assert len(list(out.rglob("gate.json"))) == 4
    assert all(path.stat().st_mtime_ns == time for path, time in first.items())
    with pytest.raises(SystemExit, match="trials of another kind"):
        call(*run, "--neighbours", "1")
    call("judge", *how, "--summary", str(tmp_path / "s.json"), "--docs", str(docs))
    setting, = json.loads((tmp_path / "s.json").read_text())["settings"]
    assert (setting["repetitions"], setting["neighbours"], setting["groups"]) == (2, 0, 1)
    nothing, slower = setting["trials"]
    assert (nothing["slower_by_percent"], nothing["sweeps"], nothing["rows"]) == (0, 1, 2)
    assert (slower["slower_by_percent"], slower["sweeps"]) == (2900, 2)
    assert slower["verdicts"] == {"SLOWER": 4}
    text = docs.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "earlier" not in text
    assert "| 1 | +2900% | 2 | 100.0 (15.8 to 100.0) | 0.0 | 100.0% |" in text
    call("judge", *how, "--summary", str(tmp_path / "s.json"), "--docs", str(docs), "--add")
    assert len(json.loads((tmp_path / "s.json").read_text())["settings"]) == 2
    assert "| 2 | +2900% | 2 | 100.0 (15.8 to 100.0) |" in docs.read_text()
    with pytest.raises(SystemExit):
        call("judge", *how, "--add")


def test_the_rank_test_alone(trials):
    base = {"row": [1 + i / 100 for i in range(20)]}
    assert trials.rank_test_finds_slower(base, {"row": [1.1 * s for s in base["row"]]})
    assert not trials.rank_test_finds_slower(base, base)
    assert not trials.rank_test_finds_slower(base, {"row": [0.9 * s for s in base["row"]]})
    assert not trials.rank_test_finds_slower(base, {"row": [1.01 * s for s in base["row"]]})
