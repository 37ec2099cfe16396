"""Sweeps, reports and exit codes of the command line."""

import contextlib
import csv
import io
import json
import os
import pty
import resource
import shutil
import signal
import stat
import subprocess

import pytest
from conftest import REPOSITORY, TINY

CONTRACT = (
    "schema,provider,kernel,device,pass,dtype,mask,batch,q_heads,kv_heads,q_len,kv_len,head_dim,"
    "status,reason,verified,max_abs_err,err_ratio,lambda,median_ms,ci_low_ms,ci_high_ms,min_ms,"
    "samples,tflops,pct_of_ceiling,speedup_vs_naive,bytes_compulsory,bytes_requested,"
    "bytes_measured,intensity,peak_bytes,workspace_bytes,sm_mhz,power_w,throttled"
).split(",")
TINY_CASES = 4
PROVIDERS = ["naive", "tiled"]

without_gpu = pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="a GPU is here")


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def tree(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def limit(what, size):
    """Returns a function for subprocess that lowers a limit of the process before it starts."""
    return lambda: resource.setrlimit(what, (size, size))


# ---- results of a sweep


def test_sweep_writes_json_csv_and_markdown(tiny_result):
    folder, process = tiny_result
    assert sorted(path.name for path in folder.iterdir()) == ["tiny.csv", "tiny.json", "tiny.md"]
    for name in ["tiny.json", "tiny.csv", "tiny.md"]:
        assert f"out/{name}" in process.stdout


def test_json_has_every_planned_row_verified(tiny_result):
    folder, _ = tiny_result
    result = json.loads((folder / "tiny.json").read_text())
    assert result["schema_version"] == 1
    assert result["config"]["name"] == "tiny"
    assert result["meta"]["version"]
    assert {ceiling["name"] for ceiling in result["ceilings"]} == {"gemm_fp32", "copy", "read", "ffma"}

    rows = result["results"]
    planned = {(kind, length, provider)
               for kind in ["forward", "backward"] for length in [16, 33] for provider in PROVIDERS}
    assert {(row["case"]["pass"], row["case"]["q_len"], row["provider"])
            for row in rows} == planned
    assert len(rows) == len(planned)
    for row in rows:
        assert (row["status"], row["correctness"]["status"]) == ("ok", "passed")
        tensors = {tensor["tensor"] for tensor in row["correctness"]["tensors"]}
        assert tensors == ({"o", "logsumexp"} if row["case"]["pass"] == "forward"
                           else {"dq", "dk", "dv"})
        samples = row["performance"]["measurement"]["samples_s"]
        assert 2 <= len(samples) <= 3 and min(samples) > 0
        assert row["performance"]["min_ms"] == pytest.approx(min(samples) * 1e3)


def test_json_is_strict(tiny_result):
    def refuse(text):
        raise AssertionError(f"{text} is not JSON")

    folder, _ = tiny_result
    json.loads((folder / "tiny.json").read_text(), parse_constant=refuse)


def test_decoding_is_measured_against_what_bounds_it(flashbench):
    decoding = {"q_len": 1, "kv_len": 3000, "q_heads": 4, "kv_heads": 2, "head_dim": 64}
    paged = {**decoding, "page_size": 16, "lengths": {"list": [[1, 70], [1, 3000], [0, 5]]}}
    for axis in ["q_len", "kv_len"]:
        del paged[axis]
    flashbench("sweep", "--config", flashbench.config(cases=[decoding, paged]), "--out", "out")
    rows = json.loads((flashbench.folder / "out/tiny.json").read_text())["results"]
    assert len(rows) == 2 * len(PROVIDERS)  # the ceilings are no rows
    for row in rows:
        stream, null = row["performance"]["round_ceilings"]
        assert (stream["name"], null["name"]) == ("stream", "null_launch")
        samples = [len(ceiling["measurement"]["samples_s"]) for ceiling in [stream, null]]
        assert min(samples) >= len(row["performance"]["measurement"]["samples_s"])
    with open(flashbench.folder / "out/tiny.csv", newline="") as file:
        for row in csv.DictReader(file):
            assert float(row["kv_bytes_per_s"]) > 0
            assert min(float(row["stream_us"]), float(row["null_launch_us"])) > 0
            assert (row["page_waste"] != "") == (row["length_cv"] != "") == (row["page_size"] != "")


def test_csv_keeps_the_contract(tiny_result):
    folder, _ = tiny_result
    text = (folder / "tiny.csv").read_text()
    assert text.splitlines()[0].split(",")[: len(CONTRACT)] == CONTRACT
    rows = rows_of(text)
    assert len(rows) == TINY_CASES * len(PROVIDERS)
    for row in rows:
        assert row["schema"] == "1"
        assert (row["status"], row["verified"], row["reason"]) == ("ok", "passed", "")
        for name in ["median_ms", "tflops", "pct_of_ceiling", "bytes_requested", "peak_bytes",
                     "intensity", "max_abs_err", "speedup_vs_naive"]:
            assert float(row[name]) > 0, name
        assert row["bytes_measured"] == ""  # not measured is empty, never 0
    naive = [row for row in rows if row["provider"] == "naive"]
    assert {float(row["speedup_vs_naive"]) for row in naive} == {1.0}


@pytest.mark.parametrize("extension, form", [("json", "json"), ("csv", "csv"), ("md", "md")])
def test_report_makes_each_file_again(tiny_result, flashbench, extension, form):
    folder, _ = tiny_result
    process = flashbench("report", folder / "tiny.json", "--format", form)
    assert process.stdout == (folder / f"tiny.{extension}").read_text()


@pytest.mark.parametrize("form", ["table", "csv", "json", "html"])
def test_a_filter_that_leaves_nothing_is_an_error(tiny_result, flashbench, form):
    process = flashbench("report", tiny_result[0] / "tiny.json", "--format", form, "--filter", "seq=17", expect=2)
    assert "report: no case is left after --filter" in process.stderr
    assert process.stdout == ""


def test_report_prints_the_table_of_the_sweep(tiny_result, flashbench):
    folder, sweep = tiny_result
    table = flashbench("report", folder / "tiny.json").stdout
    assert sweep.stdout.startswith(table)
    for provider in PROVIDERS:
        assert provider in table
    rows = [line for line in table.splitlines() if not line.startswith(("  note: ", "warning: "))]
    assert max(map(len, rows)) <= 110


def test_verify_does_not_time(flashbench):
    process = flashbench("verify", "--config", flashbench.config(), "--csv", "-", "--quiet")
    rows = rows_of(process.stdout)
    assert len(rows) == TINY_CASES * len(PROVIDERS)
    for row in rows:
        assert (row["status"], row["verified"]) == ("ok", "passed")
        assert (row["median_ms"], row["samples"], row["tflops"]) == ("", "", "")


def test_run_times_one_problem(flashbench):
    flashbench("run", "--pass", "backward", "--mask", "causal_bottom_right", "--q-heads", 2,
               "--q-len", 5, "--kv-len", 9, "--head-dim", 8, "--providers", "tiled", "--device",
               "cpu", "--max-samples", 10, "--timeout", 1, "--csv", "run.csv", "--quiet")
    (row,) = rows_of((flashbench.folder / "run.csv").read_text())
    assert (row["provider"], row["q_len"], row["kv_len"]) == ("tiled", "5", "9")
    assert float(row["median_ms"]) > 0
    assert row["speedup_vs_naive"] == ""


def test_counters_that_are_demanded_where_there_are_none_are_refused(flashbench):
    command = ["run", "--device", "cpu", "--seq", 8, "--max-samples", 10, "--timeout", 0.1, "--quiet", "--json",
               "run.json"]
    refused = flashbench(*command, "--counters", "on", expect=6)
    assert "hardware counters cannot be read (off)" in refused.stderr
    refused = flashbench("info", "--device", "cpu", "--no-measure", "--counters", "on", expect=6)
    assert "hardware counters cannot be read (off)" in refused.stderr
    for mode, reason in [("auto", "on NVIDIA GPUs only"), ("off", "switched off")]:
        flashbench(*command, "--counters", mode)
        row = json.loads((flashbench.folder / "run.json").read_text())["results"][0]
        assert row["traffic"]["bytes_measured"] is None
        assert row["traffic"]["counters"]["status"] == "off"
        assert reason in row["traffic"]["counters"]["reason"]


def test_default_folder_is_named_after_the_config(flashbench):
    flashbench("sweep", "--config", flashbench.config(), "--filter", "seq=16,pass=forward")
    assert (flashbench.folder / "results/tiny/tiny.csv").exists()


def test_quiet_leaves_stderr_empty(flashbench):
    process = flashbench("verify", "--config", flashbench.config(), "--quiet")
    assert process.stderr == ""


@pytest.mark.parametrize("terminal, clears", [("xterm", True), ("dumb", False)])
def test_a_dumb_terminal_gets_lines(flashbench, terminal, clears):
    ours, its = pty.openpty()
    command = flashbench.command("verify", "--config", flashbench.config())
    with subprocess.Popen(command, stderr=its, stdout=subprocess.DEVNULL, cwd=flashbench.folder,
                          env={**os.environ, "TERM": terminal}) as process:
        os.close(its)
        said = b""
        with contextlib.suppress(OSError):  # what a terminal without writers gives
            while part := os.read(ours, 4096):
                said += part
    os.close(ours)
    assert process.returncode == 0 and b"forward" in said
    assert (b"\x1b" in said) == clears


def test_progress_is_lines_without_a_terminal(flashbench):
    process = flashbench("verify", "--config", flashbench.config())
    assert "\r" not in process.stderr and "\x1b" not in process.stderr
    assert f"{TINY_CASES}/{TINY_CASES}" in process.stderr.replace(" ", "")


# ---- planning


@pytest.mark.parametrize(
    "arguments, count",
    [
        ([], 4),
        (["--filter", "pass=forward"], 2),
        (["--filter", "pass=forward,seq=33"], 1),
        (["--filter", "q_len=16|33"], 4),
        (["--set", "/cases/0/dtype=[\"fp32\",\"fp16\",\"bf16\"]"], 12),
        (["--set", "/cases/0/seq=7", "--set", "/cases/0/mask=none"], 2),
    ],
)
def test_dry_run_counts_the_cases(flashbench, arguments, count):
    config = flashbench.config()
    process = flashbench("sweep", "--config", config, "--dry-run", "--out", "out", *arguments)
    assert f"\n{count} case{'' if count == 1 else 's'} for" in process.stdout
    assert [path.name for path in flashbench.folder.iterdir()] == ["config.json"]


@pytest.mark.parametrize("name", ["a100", "h200", "ladder"])
def test_dry_run_of_a_gpu_config_needs_no_gpu(flashbench, name):
    config = REPOSITORY / "configs" / f"{name}.json"
    assert " cases" in flashbench("sweep", "--config", config, "--dry-run").stdout


# ---- exit code 2: usage and configs


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "required"),
        (["swep"], 'got "swep"; did you mean "sweep"?'),
        (["sweep"], "--config"),
        (["list", "--devcie", "cpu"], 'list has no option --devcie; did you mean --device?'),
        (["sweep", "--confg", "quick"], 'sweep has no option --confg; did you mean --config?'),
        (["run", "--heads=4"], 'run has no option --heads; did you mean --q-heads or --kv-heads?'),
        (["compare", "a.json"],
         "flashbench: compare: new is missing\n"
         "Compare two result files row by row: faster, slower or newly wrong\n"
         "Usage: flashbench compare [OPTIONS] base new\n"),
        (["compare"], "flashbench: compare: base is missing\n"),
        (["compare", "a.json", "--fail-on-regresion"], "compare has no option --fail-on-regresion; did you mean --fail-on-regression?"),
        (["report"], "flashbench: report: result is missing\n"),
        (["run", "-5"], "-5"),
        (["run", "--dtype", "fp64"], "fp64"),
        (["run", "--head-dim", "60"], "head_dim"),
        (["run", "--q-heads", "3", "--kv-heads", "2"], "q_heads"),
        (["run", "--seq", "0"], "--seq: expected an integer from 1 to"),
        (["run", "--timeout", "nan"], '--timeout: expected a number from 0 to 1000000, got "nan"'),
        (["run", "--providers", ""], '--providers: expected a value, got ""'),
        (["run", "--providers", "naive,"], '--providers: expected names between commas, got "naive,"'),
        (["run", "--providers", "naive,,tiled"], 'between commas, got "naive,,tiled"'),
        (["sweep", "--config", "config.json", "-o", ""], '--out: expected a value, got ""'),
        (["swep", "--help"], "swep"),
        (["sweep", "--bogus", "--help"], "sweep has no option --bogus\n"),
        (["run", "--seq", "8", "--device", "cpu", "--threads", "4097"], "--threads"),
        (["run", "--seq", "8", "--device", "gpu"], "gpu"),
        (["run", "--seq", "8", "--device", "cpu", "--providers", "tilde"], "tiled"),
        (["run", "--q", "q.npy"], "--k"),
        (["run", "--q", "q.npy", "--k", "q.npy", "--v", "q.npy", "--do", "q.npy"], "--do"),
        (["completion", "tcsh"], "tcsh"),
        (["run", "--lengths", "2q5_x"],
         'flashbench: --lengths: /batch_spec: expected q and a number of queries at character 5, found "x"'),
        (["run", "--lengths", "{"], "--lengths: "),
        (["run", "--lengths", '{"zipf": 5}'], "--lengths: /batch: missing"),
        (["run", "--lengths", "0q5"], "--lengths: expected from 1 to 32768 requests, found 0"),
        (["run", "--lengths", "q0s5"], "expected at least one query, found none in any request"),
        (["run", "--lengths", "q5", "--batch", "2"], "--lengths cannot be combined with --batch"),
        (["run", "--lengths", "q5", "--kv-len", "2"], "--lengths cannot be combined with --kv-len"),
        (["run", "--layout", "ragged"], "layout ragged needs lengths"),
        (["run", "--cu-seqlens-q", "q.npy"], "--cu-seqlens-q and --cu-seqlens-k go together"),
        (["run", "--cu-seqlens-q", "q.npy", "--cu-seqlens-k", "k.npy"], "and with --q, --k and --v"),
    ],
)
def test_usage_errors(flashbench, arguments, said):
    process = flashbench(*arguments, expect=2)
    assert said in process.stderr
    assert process.stdout == ""


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"devcie": "cpu"}, ["/devcie", "device"]),
        ({"measure": {"max_second": 1}}, ["/measure/max_second", "max_seconds"]),
        ({"schema_version": 2}, ["/schema_version", "1", "2"]),
        ({"cases": [{"seq": 8, "q_heads": 1, "head_dim": 60}]}, ["/cases/0/head_dim", "60"]),
        ({"cases": [{"seq": "8", "q_heads": 1, "head_dim": 64}]}, ["/cases/0/seq"]),
        ({"providers": ["tilde"]}, ["tilde", "tiled"]),
        ({"cases": [{"lengths": {"list": [[1, 2], [3]]}, "q_heads": 1, "head_dim": 64}]},
         ["/cases/0/lengths/list/1: expected an array of 2 to 2 items, got [3]"]),
        ({"cases": [{"lengths": {"zipf": 3, "file": "x"}, "q_heads": 1, "head_dim": 64}]},
         ["/cases/0/lengths: expected exactly one of the keys list,", "found zipf and file"]),
        ({"cases": [{"lengths": {"batch_spec": "q1"}, "seq": 3, "q_heads": 1, "head_dim": 64}]},
         ['/cases/0/lengths: cannot be combined with "seq": lengths gives the batch']),
        ({"cases": [{"layout": "ragged", "seq": 3, "q_heads": 1, "head_dim": 64}]},
         ['/cases/0/layout: ragged needs "lengths"']),
    ],
)
def test_config_errors_name_the_place(flashbench, changes, said):
    process = flashbench("sweep", "--config", flashbench.config(**changes), expect=2)
    for words in said:
        assert words in process.stderr
    assert process.stdout == ""
    assert [path.name for path in flashbench.folder.iterdir()] == ["config.json"]


def test_all_config_errors_are_told_at_once(flashbench):
    config = flashbench.config(devcie="cpu", threads=-1,
                               cases=[{"seq": 0, "q_heads": 1, "head_dim": 64}])
    said = flashbench("sweep", "--config", config, expect=2).stderr
    for pointer in ["/devcie", "/threads", "/cases/0/seq"]:
        assert pointer in said


def test_broken_json_names_the_place(flashbench):
    (flashbench.folder / "broken.json").write_text('{\n  "name": "x",\n  "cases": [,]\n}\n')
    said = flashbench("sweep", "--config", "broken.json", expect=2).stderr
    assert "broken.json" in said and "line 3" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "threads=2"],
        ["--set", "/threads"],
        ["--set", "/threads=many"],
        ["--filter", "lenght=16"],
        ["--filter", "seq=17"],
        ["--filter", "pass"],
        ["--filter", "pass=forward,"],
        ["--filter", "seq=abc"],
    ],
)
def test_bad_overrides_and_filters(flashbench, arguments):
    process = flashbench("sweep", "--config", flashbench.config(), *arguments, expect=2)
    assert process.stderr


def test_threads_that_the_system_does_not_start(flashbench):
    process = flashbench("run", "--seq", 8, "--device", "cpu", "--no-time", "--threads", 4096,
                         expect=2, preexec_fn=limit(resource.RLIMIT_AS, 1 << 30))
    assert "threads: the system could start only" in process.stderr


# ---- exit code 4: out of memory


def test_out_of_memory_is_a_row(flashbench):
    """naive cannot hold a gigabyte of scores in a gigabyte of memory; tiled does not need to."""
    config = flashbench.config(
        threads=1, verify={"fp64_flops": 1e7},
        cases=[{"seq": 16384, "q_heads": 1, "head_dim": 8}])
    process = flashbench("verify", "--config", config, "--csv", "-", "--quiet", expect=4,
                         preexec_fn=limit(resource.RLIMIT_AS, 1 << 30))
    rows = {row["provider"]: row for row in rows_of(process.stdout)}
    assert rows["naive"]["status"] == "out_of_memory"
    assert rows["naive"]["reason"]
    assert rows["naive"]["verified"] == "not_checked"
    assert rows["naive"]["max_abs_err"] == ""
    assert (rows["tiled"]["status"], rows["tiled"]["verified"]) == ("ok", "sampled")


def test_tune_has_nothing_to_do_on_a_cpu(flashbench, tmp_path):
    table = tmp_path / "table.inc"
    process = flashbench("tune", "--device", "cpu", "--table", table, expect=2)
    assert "no kernel can be tuned on cpu" in process.stderr
    assert not table.exists()


def test_tune_takes_only_what_kernels_are_compiled_for(flashbench):
    process = flashbench("tune", "--device", "cpu", "--head-dim", 80, expect=2)
    assert "--head-dim: 80 not in" in process.stderr
    assert "96" in process.stderr


# ---- exit code 6: no device


@without_gpu
@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "--device", "cuda"],
        ["list", "--device", "cuda:1"],
        ["run", "--seq", "8", "--device", "cuda"],
        ["sweep", "--config", "config.json", "--device", "cuda"],
        ["verify", "--config", "config.json", "--set", "/device=cuda"],
    ],
)
def test_no_device_says_what_to_do(flashbench, arguments):
    flashbench.config()
    process = flashbench(*arguments, expect=6)
    assert "--device cpu" in process.stderr
    assert not (flashbench.folder / "results").exists()


# ---- exit code 7: files


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["sweep", "--config", "missing.json"], "missing.json"),
        (["sweep", "--config", "."], ".: cannot read: Is a directory"),
        (["sweep", "--config", "config.json", "--out", "config.json/out"], "config.json/out"),
        (["report", "missing.json"], "missing.json"),
        (["report", "config.json"], "config.json"),
        (["run", "--q", "no.npy", "--k", "no.npy", "--v", "no.npy"], "no.npy"),
        (["run", "--seq", "8", "--device", "cpu", "--no-time", "--dump", "config.json/dump"],
         "config.json/dump"),
        (["run", "--seq", "8", "--device", "cpu", "--no-time", "--json", "no/such/folder.json"],
         "no/such"),
    ],
)
def test_files_that_cannot_be_read_or_written(flashbench, arguments, said):
    flashbench.config()
    assert said in flashbench(*arguments, expect=7).stderr


VERIFY_ONE = ["run", "--seq", 8, "--device", "cpu", "--no-time", "--quiet"]
EXPORTS = ["--json", "--csv", "--md"]


def test_a_failed_write_leaves_the_old_result(flashbench):
    """Exceeding a file-size limit is a write error; its signal would end the program silently.

    The limit is a page, which the memory that sweep and worker share needs: it counts as a file.
    """
    problem = [*VERIFY_ONE, "--json", "run.json"]
    flashbench(*problem)
    assert (flashbench.folder / "run.json").stat().st_size > 4096
    before = tree(flashbench.folder)
    process = flashbench(*problem, "--seed", 2, expect=7,
                         preexec_fn=limit(resource.RLIMIT_FSIZE, 4096))
    assert "run.json: cannot write: File too large" in process.stderr
    assert tree(flashbench.folder) == before


@pytest.mark.parametrize("flag", EXPORTS)
def test_an_export_keeps_what_is_there(flashbench, flag):
    """Writes to a device, a pipe and a link, keeps a file's mode, and respects write protection."""
    folder = flashbench.folder
    process = flashbench(*VERIFY_ONE, flag, "/dev/full", expect=7)
    assert "/dev/full: cannot write: No space left on device" in process.stderr
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)

    (folder / "target").write_text("old")
    (folder / "target").chmod(0o600)
    (folder / "link").symlink_to("target")
    flashbench(*VERIFY_ONE, flag, "link")
    assert (folder / "link").is_symlink()
    assert (folder / "target").read_text() != "old"
    assert stat.S_IMODE((folder / "target").stat().st_mode) == 0o600

    (folder / "target").chmod(0o444)
    before = (folder / "target").read_bytes()
    process = flashbench(*VERIFY_ONE, flag, "target", expect=7)
    assert "target: cannot write: Permission denied" in process.stderr
    assert (folder / "target").read_bytes() == before

    os.mkfifo(folder / "pipe")
    with subprocess.Popen(["cat", folder / "pipe"], stdout=subprocess.PIPE) as reader:
        flashbench(*VERIFY_ONE, flag, "pipe")
        assert reader.communicate(timeout=60)[0]
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["sweep", "--config", "config.json", "--out", "out", "--html", "out/tiny.json"], "--html out/tiny.json: the result file writes there, too"),
        (["sweep", "--config", "config.json", "--out", "out", "--html", "out/../out/tiny.csv"], "the result file writes there, too"),
        (["run", "--seq", 16, "--json", "x", "--csv", "x"], "--csv x: --json writes there, too"),
        (["run", "--seq", 16, "--json", "-", "--csv", "-"], "--csv -: --json writes there, too"),
        (["verify", "--config", "config.json", "--csv", "x", "--md", "./x"], "--md ./x: --csv writes there, too"),
        (["report", "old.json", "-f", "csv", "-o", "old.json"], "--out old.json: the command reads this file"),
        (["compare", "old.json", "old.json", "--json", "y", "--md", "y"], "--md y: --json writes there, too"),
        (["compare", "old.json", "old.json", "--md", "old.json"], "--md old.json: the command reads this file"),
        (["sweep", "--config", "config.json", "--html", "config.json"], "--html config.json: the command reads this file"),
        (["sweep", "--config", "config.json", "--set", "/name=config", "--out", "."], "config.json: the command reads this file"),
        (["sweep", "--config", "config.json", "--baseline", "old.json", "--html", "old.json"], "--html old.json: the command reads this file"),
        (["sweep", "--config", "config.json", "--set", "/name=old", "--baseline", "old.json", "--out", "."],
         "the result file ./old.json: the command reads this file"),
        (["verify", "--config", "config.json", "--json", "config.json"], "--json config.json: the command reads this file"),
        (["verify", "--config", "lengths.json", "--csv", "lengths.csv"], "--csv lengths.csv: the command reads this file"),
        (["run", "--lengths", '{"file":"lengths.csv"}', "--csv", "lengths.csv"], "--csv lengths.csv: the command reads this file"),
    ],
)
def test_an_output_has_a_place_of_its_own(tiny_result, flashbench, arguments, said):
    flashbench.config()
    folder = flashbench.folder
    (folder / "old.json").write_bytes((tiny_result[0] / "tiny.json").read_bytes())
    (folder / "lengths.csv").write_text("q_len,kv_len\n3,5\n")
    (folder / "lengths.json").write_text(json.dumps({**TINY, "cases": [{"pass": "forward", "lengths": {"file": "lengths.csv"}, "q_heads": 2, "head_dim": 16}]}))
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    assert said in flashbench(*arguments, expect=2).stderr
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == kept
    assert not (folder / "out/tiny.json").exists()


def test_a_plugin_is_not_overwritten(flashbench, plugins):
    plugin = flashbench.folder / "own.so"
    kept = (plugins / "plain_c.so").read_bytes()
    plugin.write_bytes(kept)
    process = flashbench("run", "--seq", 16, "--plugin", plugin, "--json", plugin, expect=2)
    assert "own.so: the command reads this file" in process.stderr
    assert plugin.read_bytes() == kept


def test_any_number_of_outputs_may_go_to_the_null_device(tiny_result, flashbench):
    result = tiny_result[0] / "tiny.json"
    flashbench("compare", result, result, "--json", "/dev/null", "--md", "/dev/null", "-o", "/dev/null")


def test_a_page_can_go_to_standard_output(flashbench):
    process = flashbench("sweep", "--no-ceilings", "--config", flashbench.config(), "--out", "out", "--html", "-")
    assert process.stdout.startswith("<!doctype html>")
    assert not (flashbench.folder / "-").exists()


def test_output_files_are_checked_before_the_work(flashbench):
    """The plan has a case that would take hours."""
    (flashbench.folder / "result").mkdir()
    hours = ["--device", "cpu", "--seq", 1 << 20, "--q-heads", 64]
    for flag in EXPORTS:
        flashbench("run", *hours, flag, "result", expect=7)
    config = flashbench.config(cases=[{"seq": 1 << 20, "q_heads": 64, "head_dim": 64}])
    for name in ["tiny.json", "tiny.csv", "tiny.md", "baselines/main.json"]:
        (flashbench.folder / "out" / name).mkdir(parents=True)
        process = flashbench("sweep", "--config", config, "--out", "out", "--save-baseline", "main",
                             expect=7)
        assert f"out/{name}: cannot write: Is a directory" in process.stderr
        (flashbench.folder / "out" / name).rmdir()


@pytest.mark.parametrize("verb", [["--help"], ["--version"], ["list", "--device", "cpu"],
                                  ["completion", "bash"], ["manual"], ["report", "tiny.json"],
                                  ["report", "tiny.json", "-f", "json"],
                                  ["compare", "tiny.json", "tiny.json"],
                                  [*VERIFY_ONE], [*VERIFY_ONE, "--csv", "-"]], ids=str)
def test_lost_output_is_an_error(tiny_result, binary, verb):
    words = [binary, *map(str, verb)]
    with open("/dev/full", "w") as full:
        process = subprocess.run(words, cwd=tiny_result[0], stdout=full, stderr=subprocess.PIPE,
                                 text=True)
    assert process.returncode == 7
    assert process.stderr == ("flashbench: standard output: cannot write: No space left on device\n")
    closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *words], cwd=tiny_result[0],
                            stderr=subprocess.PIPE, text=True)
    assert closed.returncode == 7
    assert "standard output: cannot write: Bad file descriptor" in closed.stderr


def test_a_reader_that_goes_ends_it_without_a_word(tiny_result, binary):
    reading, writing = os.pipe()
    os.close(reading)
    words = [binary, "report", "tiny.json"]
    process = subprocess.run(words, cwd=tiny_result[0], stdout=writing, stderr=subprocess.PIPE)
    assert (process.returncode, process.stderr) == (-signal.SIGPIPE, b"")
    ignored = subprocess.run(words, cwd=tiny_result[0], stdout=writing, stderr=subprocess.PIPE,
                             restore_signals=False, text=True)
    assert ignored.returncode == 7 and "Broken pipe" in ignored.stderr
    os.close(writing)


def test_errors_that_nobody_reads_change_nothing(flashbench):
    config = flashbench.config()
    with open("/dev/full", "w") as full:
        for words, code in [(["swep"], 2), (["report", "missing.json"], 7),
                            (["verify", "--config", config], 0)]:
            process = subprocess.run(flashbench.command(*words), cwd=flashbench.folder, stderr=full,
                                     stdout=subprocess.DEVNULL)
            assert process.returncode == code


def test_a_pipe_that_nobody_writes_to_is_no_config(flashbench):
    os.mkfifo(flashbench.folder / "pipe")
    process = flashbench("sweep", "--config", "pipe", expect=7)
    assert "pipe: cannot read: this pipe has no writer" in process.stderr
    assert "no writer" in flashbench("report", "pipe", expect=7).stderr


def test_a_config_from_standard_input(flashbench):
    with open(flashbench.config()) as config:
        process = subprocess.run(flashbench.command("sweep", "-c", "-", "--dry-run"), stdin=config,
                                 cwd=flashbench.folder, capture_output=True, text=True)
    assert process.returncode == 0 and "4 cases" in process.stdout
    process = subprocess.run(flashbench.command("sweep", "-c", "-", "--dry-run"), input="{",
                             cwd=flashbench.folder, capture_output=True, text=True)
    assert process.returncode == 2 and "standard input: 1 error" in process.stderr


# ---- configs by name


@pytest.mark.parametrize("name", ["quick", "quick.json"])
def test_a_config_that_ships_is_known_by_its_name(flashbench, name):
    assert "cases for" in flashbench("sweep", "--config", name, "--dry-run").stdout
    flashbench.config(name="mine").rename(flashbench.folder / name)
    flashbench("sweep", "--config", name, "--device", "cpu", "--filter", "pass=forward,seq=16")
    assert (flashbench.folder / "results/mine/mine.csv").exists()  # a file has precedence


def test_a_config_that_is_not_there_says_where_configs_are(flashbench):
    process = flashbench("sweep", "--config", "quik", expect=7)
    assert 'did you mean "quick"?' in process.stderr
    assert str(REPOSITORY / "configs") in process.stderr
    assert str(REPOSITORY / "configs") in flashbench("sweep", "--help").stdout


def test_a_result_cannot_replace_a_folder(flashbench):
    (flashbench.folder / "run.json").mkdir()
    flashbench("run", "--seq", 8, "--device", "cpu", "--no-time", "--quiet", "--json", "run.json",
               expect=7)
    assert [path.name for path in flashbench.folder.iterdir()] == ["run.json"]


def test_a_dry_run_knows_the_providers(flashbench):
    for known in ["naive", "tiled:*", "naive,tiled"]:
        flashbench("sweep", "--config", "quick", "--dry-run", "--providers", known)
    for unknown in ["cudnn", "naive,nope"]:
        process = flashbench("sweep", "--config", "quick", "--dry-run", "--providers", unknown, expect=2)
        assert f'no provider "{unknown.split(",")[-1]}" runs on the CPU' in process.stderr
    # A build without CUDA has none of the GPU's.
    flashbench("sweep", "--config", "quick", "--dry-run", "--device", "cuda", "--providers", "cudnn")


# ---- the rest


def test_version_names_the_build(flashbench):
    said = flashbench("--version").stdout
    assert said.startswith("flashbench ") and "GNU" in said


@pytest.mark.parametrize("verb", [[], ["sweep"], ["run"], ["verify"], ["compare"], ["report"], ["list"],
                                  ["info"], ["completion"]], ids=" ".join)
def test_help(flashbench, verb):
    process = flashbench(*verb, "--help")
    assert "--help" in process.stdout and process.stderr == ""


def test_list_names_providers_and_kernels(flashbench):
    said = flashbench("list", "--device", "cpu").stdout
    for name in [*PROVIDERS, "cpu_tiled_forward", "cpu_tiled_backward"]:
        assert name in said


def test_info_as_json(flashbench):
    info = json.loads(flashbench("info", "--device", "cpu", "--no-measure", "--json").stdout)
    assert info["devices"][0]["kind"] == "cpu"
    assert info["devices"][0]["counters"]["status"] == "off"
    assert info["meta"]["compiler"]


def test_info_measures_ceilings_and_probes_no_cpu(flashbench):
    info = json.loads(flashbench("info", "--device", "cpu", "--threads", 1, "--min-samples", 1, "--max-samples", 1, "--json").stdout)
    assert [ceiling["name"] for ceiling in info["ceilings"]] == ["gemm_fp32", "copy", "read", "ffma"]
    assert "probes" not in info["devices"][0]


# ---- cuDNN


@pytest.mark.parametrize("verb", [["list"], ["info", "--no-measure"], ["run", "--seq", 16],
                                  ["sweep", "--config", "config.json"],
                                  ["verify", "--suite", "adversarial", "--dry-run"]])
def test_a_cudnn_that_is_none_is_refused(flashbench, verb):
    flashbench.config()
    (flashbench.folder / "text").write_text("not a library")
    for path, why in [("nowhere", "No such file"), ("text", "file too short"), (".", "libcudnn.so.9")]:
        said = flashbench(*verb, "--cudnn", path, expect=2).stderr
        assert said.startswith("flashbench: --cudnn: cuDNN 9 cannot be opened: ")
        assert str(flashbench.folder / path) in said or path == "."
        assert why in said


@pytest.mark.parametrize("verb", [["list"], ["info", "--no-measure"], ["run", "--seq", 16]])
def test_an_nccl_that_is_none_is_refused(flashbench, verb):
    said = flashbench(*verb, "--nccl", "nowhere", expect=2).stderr
    assert said.startswith("flashbench: --nccl: NCCL 2 cannot be opened: ")
    assert f"{flashbench.folder}/nowhere: cannot open" in said


def test_what_needs_no_cudnn_does_not_care_where_it_is(flashbench):
    for verb in [["list", "--device", "cpu"], ["run", "--device", "cpu", "--seq", 16]]:
        flashbench(*verb, env={**os.environ, "FLASHBENCH_CUDNN": "/nowhere"})


def test_a_problem_that_no_provider_takes_hints_at_those_on_request(flashbench):
    hint = "only if --providers names them"
    assert hint in flashbench("run", "--seq", 16, "--dtype", "e4m3").stderr
    assert hint not in flashbench("run", "--seq", 16, "--dtype", "e4m3", "--providers", "emulated").stderr
    assert hint not in flashbench("run", "--seq", 16, "--dtype", "e4m3", "--quiet").stderr
