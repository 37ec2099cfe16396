"""Faults that a sweep survives: providers that crash, hang or lie; being killed; a full disk."""

import contextlib
import csv
import ctypes
import json
import os
import signal
import subprocess
import time

import pytest
from conftest import TINY, Flashbench

TINY_CASES = 4
PROVIDERS = ["naive", "tiled"]
LONG = {"measure": {"max_seconds": 600, "target_ci_width": 1e-9, "max_samples": 100000}}


def rows(path):
    return {(row["key"], row["provider"]): row for row in json.loads(path.read_text())["results"]}


def fault(text, **more):
    return {"env": {**os.environ, "FLASHBENCH_FAULT": text, **more}}


def lines(journal):
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def worker_of(process):
    """Waits for a sweep's worker, and returns its process id."""
    children = f"/proc/{process.pid}/task/{process.pid}/children"

    def pids():
        with open(children) as file:
            return file.read().split()

    wait_until(pids)
    return int(pids()[0])


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ignores(pid, number):
    with open(f"/proc/{pid}/status") as file:
        ignored = next(line.split()[1] for line in file if line.startswith("SigIgn:"))
    return int(ignored, 16) >> (number - 1) & 1


# ---- providers that misbehave: each costs its own row


@pytest.mark.parametrize(
    "kind, status, reason, code",
    [
        ("crash", "crashed", "killed by signal 11", 4),
        ("abort", "crashed", "it last printed: faulty: these are my last words", 4),
        ("exit", "crashed", "without an answer, with exit code 0", 4),
        ("crash_early", "crashed", "killed by signal 11", 4),
        ("crash_late", "crashed", "killed by signal 11", 4),
        ("crash_beside", "crashed", "killed by signal 11", 4),
        ("crash_at_load", "crashed", "when it was loaded, its worker was killed by signal 11", 4),
        ("error", "error", "reported, as told", 4),
        ("garbage", "error", "run returned the status 77, which is not allowed: ???", 4),
        ("refuse_late", "unsupported", "refused late, as told", 0),
        ("refuse", "unsupported", "refused, as told", 0),
        ("out_of_memory", "out_of_memory", "no room", 4),
        ("hang", "timeout", "did not end within 4 s", 4),
        ("deaf", "timeout", "did not end within 4 s", 4),
        ("huge_output", "ok", "", 0),
        ("nan", "failed", "finite where it must not be, or the reverse", 3),
        ("wrong_shape", "failed", "is off by", 3),
        ("out_of_bounds", "failed", "o", 3),
        ("early_return", "failed", "unwritten", 3),
        ("modify_inputs", "failed", "it changed its inputs", 3),
        ("left_running", "failed", "", 3),
        ("spinning", "failed", "1 thread continued to work after it had returned", 3),
        ("child", "failed", "1 child process continued to work after it had returned", 3),
        ("fork", "error", "a child process that it forked came back from run", 4),
        ("round_up", "ok", "", 0),
    ],
)
def test_a_fault_costs_one_row(with_faults, kind, status, reason, code):
    with_faults("run", "--device", "cpu", "--seq", 33, "--q-heads", 2, "--head-dim", 16,
                "--max-samples", 2, "--min-samples", 2, "--warmup", 1, "--json", "run.json",
                "--case-timeout", 4 if status == "timeout" else 60, expect=code, **fault(kind))
    results = json.loads((with_faults.folder / "run.json").read_text())["results"]
    assert [row["provider"] for row in results] == [*PROVIDERS, "plugin:faulty"]
    faulty = results[-1]
    assert faulty["status"] == status
    assert reason in faulty["reason"]
    assert (faulty["performance"] is None) == (status != "ok")
    for row in results[:-1]:
        assert row["status"] == "ok", row["reason"]
        assert row["performance"] is not None


def test_a_crash_in_one_case_leaves_the_others(with_faults):
    with_faults("sweep", "--no-ceilings", "--config", with_faults.config(), "--out", "out", expect=4,
                **fault("crash@forward/fp32/none/bshd/b1/hq2/hkv2/q33"))
    result = rows(with_faults.folder / "out/tiny.json")
    assert len(result) == TINY_CASES * 3
    crashed = [key for key, row in result.items() if row["status"] != "ok"]
    assert len(crashed) == 1 and crashed[0][1] == "plugin:faulty" and "q33" in crashed[0][0]


@pytest.mark.parametrize("kind, status, code", [("daemon", "failed", 3), ("daemon_crash", "crashed", 4)])
def test_what_leaves_the_workers_process_group_ends_with_it(with_faults, kind, status, code):
    number = with_faults.folder / "daemon"
    with_faults("run", "--device", "cpu", "--seq", 33, "--q-heads", 2, "--head-dim", 16, "--max-samples", 2, "--min-samples", 2,
                "--json", "run.json", expect=code, **fault(kind, FLASHBENCH_DAEMON=str(number)))
    rows = json.loads((with_faults.folder / "run.json").read_text())["results"]
    assert [row["status"] for row in rows] == ["ok", "ok", status]
    assert not alive(int(number.read_text()))


# A child that comes back must neither answer nor write to the journal.
@pytest.mark.parametrize("kind, more", [("fork", ()), ("fork", ("--no-isolate",)), ("fork_by_number", ())])
def test_a_child_that_comes_back_does_nothing_twice(with_faults, kind, more):
    with_faults("sweep", "--no-ceilings", "--config", with_faults.config(), "--out", "out", *more,
                expect=4, **fault(f"{kind}@q33"))
    results = json.loads((with_faults.folder / "out/tiny.json").read_text())["results"]
    assert [row["provider"] for row in results] == [*PROVIDERS, "plugin:faulty"] * TINY_CASES
    for row in results:
        if row["provider"] == "plugin:faulty" and "q33" in row["key"]:
            assert row["status"] == "error" and "came back from run" in row["reason"]
        else:
            assert row["status"] == "ok", row["reason"]


LARGE = ["--seq", 512, "--q-heads", 32, "--head-dim", 64]  # tensors of 4 MiB, which are mapped anew


@pytest.mark.parametrize("isolate", [(), ("--no-isolate",)])
@pytest.mark.parametrize("kind", ["limit_memory", "limit_at_load"])
def test_a_plugin_that_limits_memory_costs_no_row(with_faults, kind, isolate):
    with_faults("run", "--device", "cpu", *LARGE, "--max-samples", 2, "--min-samples", 2, "--json", "run.json", *isolate,
                **fault(kind))
    results = json.loads((with_faults.folder / "run.json").read_text())["results"]
    assert [row["status"] for row in results] == ["ok"] * 3, [row["reason"] for row in results]


def may_not_raise_limits():
    PR_CAPBSET_DROP = CAP_SYS_RESOURCE = 24
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0)


def test_a_plugin_that_limits_memory_for_good_costs_its_own_row(with_faults):
    with_faults("run", "--device", "cpu", *LARGE, "--max-samples", 2, "--min-samples", 2, "--json", "run.json", expect=4,
                preexec_fn=may_not_raise_limits, **fault("limit_for_good"))
    results = json.loads((with_faults.folder / "run.json").read_text())["results"]
    assert [row["status"] for row in results] == ["ok", "ok", "crashed"], [row["reason"] for row in results]
    assert "the plugin lowered a limit of its process (setrlimit) that may not be raised again" in results[-1]["reason"]


@pytest.mark.parametrize("isolate", [(), ("--no-isolate",)])
def test_a_plugin_that_flushes_small_numbers_costs_no_other_row(with_faults, isolate):
    with_faults("run", "--device", "cpu", "--dtype", "fp16", "--seq", 256, "--q-heads", 2, "--scale", 4, "--threads", 1,
                "--max-samples", 2, "--min-samples", 2, "--json", "run.json", *isolate, **fault("flush_at_load"))
    results = json.loads((with_faults.folder / "run.json").read_text())["results"]
    assert [row["status"] for row in results] == ["ok", "ok", "unsupported"], [row["reason"] for row in results]


def test_without_isolation_soft_faults_are_rows_too(with_faults):
    config = with_faults.config()
    with_faults("sweep", "--no-ceilings", "--config", config, "--out", "out", "--no-isolate", expect=3,
                **fault("nan@q33"))
    statuses = [row["status"] for row in rows(with_faults.folder / "out/tiny.json").values()]
    assert statuses.count("failed") == 2 and statuses.count("ok") == TINY_CASES * 3 - 2


def test_without_isolation_there_are_no_repetitions(flashbench):
    process = flashbench("run", "--seq", 16, "--no-isolate", "--repetitions", 3, expect=2)
    assert "each of 3 repetitions needs a process of its own, which --no-isolate does not start: expected --repetitions 1" in process.stderr
    flashbench("run", "--seq", 16, "--q-heads", 1, "--no-isolate", "--repetitions", 1, "--max-samples", 5, "--min-samples", 5)


def test_a_lost_device_ends_the_sweep_and_can_be_resumed(with_faults, plugins):
    config = with_faults.config()
    marker = with_faults.folder / "lost"
    sweep = ["sweep", "--no-ceilings", "--config", config, "--out", "out"]
    lost = fault("crash@q33", FLASHBENCH_LOST_DEVICE=str(marker),
                 LD_PRELOAD=str(plugins / "lost_device.so"))
    process = with_faults(*sweep, expect=6, **lost)
    assert "the device cannot be used" in process.stderr
    assert not (with_faults.folder / "out/tiny.json").exists()
    marker.unlink()
    with_faults(*sweep, "--resume")
    assert {row["status"] for row in rows(with_faults.folder / "out/tiny.json").values()} == {"ok"}


# ---- killed and resumed


@pytest.fixture(scope="module")
def all_rows(binary, tmp_path_factory):
    """The keys of an undisturbed sweep."""
    from conftest import Flashbench

    flashbench = Flashbench(binary, tmp_path_factory.mktemp("undisturbed"))
    flashbench("sweep", "--no-ceilings", "--config", flashbench.config(), "--out", "out", "--quiet")
    return list(rows(flashbench.folder / "out/tiny.json"))


@pytest.mark.parametrize(
    "records, flags",
    # With ceilings there is one more line before the cases.
    [*((n, []) for n in range(3)), *((n, ["--no-ceilings"]) for n in range(1, TINY_CASES + 2))],
)
def test_killed_at_every_journal_record(flashbench, all_rows, records, flags):
    sweep = ["sweep", *flags, "--config", flashbench.config(), "--out", "out"]
    journal = flashbench.folder / "out/tiny.journal"
    with flashbench.start(*sweep) as process:
        wait_until(lambda: lines(journal) >= records or process.poll() is not None)
        process.kill()
    kept = journal.read_bytes() if journal.exists() else b""
    flashbench(*sweep, "--resume")
    assert list(rows(flashbench.folder / "out/tiny.json")) == all_rows
    assert not journal.exists()
    assert process.returncode == -signal.SIGKILL or kept == b""


def journal_of_an_interrupted_sweep(flashbench, sweep):
    """Makes a complete journal: that of a sweep whose result cannot be written at its end."""
    (flashbench.folder / "out").mkdir(exist_ok=True)
    (flashbench.folder / "out/tiny.json").symlink_to("/dev/full")
    flashbench(*sweep, expect=7)
    (flashbench.folder / "out/tiny.json").unlink()
    return flashbench.folder / "out/tiny.journal"


def test_cut_at_every_line_and_within_it(flashbench, all_rows):
    sweep = ["sweep", "--no-ceilings", "--config", flashbench.config(), "--out", "out"]
    journal = journal_of_an_interrupted_sweep(flashbench, sweep)
    whole = journal.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == TINY_CASES + 1
    for end in ends:
        for size in (end, end + 40):
            journal.write_bytes(whole[:size])
            flashbench(*sweep, "--resume")
            assert list(rows(flashbench.folder / "out/tiny.json")) == all_rows
            assert not journal.exists()


def test_resuming_measures_nothing_twice(flashbench):
    sweep = ["sweep", "--no-ceilings", "--config", flashbench.config(), "--out", "out"]
    journal = journal_of_an_interrupted_sweep(flashbench, sweep)
    records = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    flashbench(*sweep, "--resume")
    result = rows(flashbench.folder / "out/tiny.json")
    for entry in records:
        for record in entry["records"]:
            assert result[record["key"], record["provider"]]["performance"] == record["performance"]


def test_a_journal_can_be_reported(flashbench, all_rows):
    sweep = ["sweep", "--no-ceilings", "--config", flashbench.config(), "--out", "out"]
    journal = journal_of_an_interrupted_sweep(flashbench, sweep)
    report = json.loads(flashbench("report", journal, "--format", "json").stdout)
    assert [(row["key"], row["provider"]) for row in report["results"]] == all_rows
    flashbench("report", "missing.journal", expect=7)

    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:2]))
    flashbench("report", journal, "--format", "json", "--out", "part.json")
    assert len(rows(flashbench.folder / "part.json")) == len(all_rows) / TINY_CASES
    flashbench("report", "part.json")


def test_a_damaged_journal_is_refused_and_kept(flashbench):
    sweep = ["sweep", "--no-ceilings", "--config", flashbench.config(), "--out", "out"]
    journal = journal_of_an_interrupted_sweep(flashbench, sweep)
    damaged = bytearray(journal.read_bytes())
    damaged[damaged.index(b"samples_s")] ^= 1
    journal.write_bytes(damaged)
    process = flashbench(*sweep, "--resume", expect=7)
    assert "line 2 is damaged: expected the checksum" in process.stderr
    assert journal.read_bytes() == damaged
    process = flashbench(*sweep)  # starts anew, and keeps the old journal
    assert "moved to out/tiny.journal.old" in process.stderr
    assert (flashbench.folder / "out/tiny.journal.old").read_bytes() == damaged


@pytest.mark.parametrize(
    "change, said",
    [
        (["--max-samples", "4"], "/options/measure/max_samples: 3 there, 4 now"),
        (["--threads", "1"], "/device/threads"),
        (["--filter", "pass=forward"], "/cases: 4 there, 2 now"),
        (["--providers", "tiled"], "/providers/0"),
        (["--set", "/description=other"], "/config_hash"),
    ],
)
def test_another_sweep_is_not_resumed(flashbench, change, said):
    sweep = ["sweep", "--no-ceilings", "--config", flashbench.config(), "--out", "out", "--threads", "2"]
    journal = journal_of_an_interrupted_sweep(flashbench, sweep)
    kept = journal.read_bytes()
    process = flashbench(*(sweep[:-2] if "--threads" in change else sweep), *change, "--resume",
                         expect=2)
    assert said in process.stderr
    assert journal.read_bytes() == kept


def test_resuming_nothing_starts_anew(flashbench):
    process = flashbench("sweep", "--no-ceilings", "--config", flashbench.config(), "--out", "out", "--resume")
    assert "nothing to resume" in process.stderr
    assert len(rows(flashbench.folder / "out/tiny.json")) == TINY_CASES * len(PROVIDERS)


def test_a_finished_sweep_is_not_measured_again(flashbench):
    sweep = ["sweep", "--no-ceilings", "--config", flashbench.config(), "--out", "out"]
    flashbench(*sweep)
    result = flashbench.folder / "out/tiny.json"
    kept = result.read_bytes()
    assert "the sweep is finished: out/tiny.json" in flashbench(*sweep, "--resume").stdout
    for change in (["--providers", PROVIDERS[0]], ["--filter", "q_len=33"]):
        assert "without --resume it is replaced" in flashbench(*sweep, *change, "--resume", expect=2).stderr
    for change in (["--cache", "cold"], ["--repetitions", 2], ["--max-samples", 2]):
        process = flashbench(*sweep, *change, "--resume", expect=2)
        assert "this result is of another sweep" in process.stderr and "/sweep/options/measure/" in process.stderr
    flashbench(*sweep, "--resume", "--html", "out/page.html")
    assert "<html" in (flashbench.folder / "out/page.html").read_text()
    (flashbench.folder / "out/page.html").unlink()
    changed = flashbench.config(description="another")
    process = flashbench("sweep", "--no-ceilings", "--config", changed, "--out", "out", "--resume", expect=2)
    assert "this result is of another sweep" in process.stderr
    assert result.read_bytes() == kept


def test_a_finished_sweep_is_not_that_of_another_plugin(binary, plugins, tmp_path):
    plugin = tmp_path / "own.so"
    plugin.write_bytes((plugins / "plain_c.so").read_bytes())
    flashbench = Flashbench(binary, tmp_path, plugin)
    sweep = ["sweep", "--no-ceilings", "--config", flashbench.config(), "--out", "out", "--providers", "plugin:own"]
    flashbench(*sweep)
    with plugin.open("ab") as file:
        file.write(b"built again")
    process = flashbench(*sweep, "--resume", expect=2)
    assert "/sweep/plugins/plugin:own/xxh3" in process.stderr


def test_retry_failed_runs_only_what_did_not_end_well(with_faults):
    sweep = ["sweep", "--no-ceilings", "--config", with_faults.config(), "--out", "out"]
    journal = with_faults.folder / "out/tiny.journal"
    with_faults(*sweep, expect=4, **fault("crash@q33"))
    assert lines(journal) == TINY_CASES + 1  # kept, because there is something to retry
    before = rows(with_faults.folder / "out/tiny.json")
    with_faults(*sweep, "--resume", expect=4)  # crashed cases are rerun only on request
    process = with_faults(*sweep, "--resume", "--retry-failed")
    assert f"{TINY_CASES - 2} of {TINY_CASES} cases are in the journal" in process.stderr
    after = rows(with_faults.folder / "out/tiny.json")
    assert list(after) == list(before)
    assert {row["status"] for row in after.values()} == {"ok"}
    assert not journal.exists()


def test_retry_failed_needs_resume(flashbench):
    flashbench("sweep", "--no-ceilings", "--config", flashbench.config(), "--retry-failed", expect=2)


def test_two_sweeps_do_not_share_a_journal(flashbench):
    sweep = ["sweep", "--no-ceilings", "--config", flashbench.config({**TINY, **LONG}), "--out", "out"]
    with flashbench.start(*sweep) as process:
        wait_until(lambda: lines(flashbench.folder / "out/tiny.journal") >= 1)
        stderr = flashbench(*sweep, expect=7).stderr
        assert "another sweep is writing it" in stderr and "moved" not in stderr
        process.kill()


def test_repetitions_run_in_processes_of_their_own(flashbench):
    flashbench("sweep", "--no-ceilings", "--config", flashbench.config(), "--out", "out", "--repetitions", 3)
    result = rows(flashbench.folder / "out/tiny.json")
    assert len(result) == TINY_CASES * len(PROVIDERS)
    for row in result.values():
        measurement = row["performance"]["measurement"]
        assert len(measurement["samples_per_process"]) == 3
        assert sum(measurement["samples_per_process"]) == len(measurement["samples_s"])


# ---- signals


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_sweep_keeps_its_journal(flashbench, all_rows, number, code):
    long_config = flashbench.config({**TINY, **LONG})
    sweep = ["sweep", "--no-ceilings", "--config", long_config, "--out", "out"]
    with flashbench.start(*sweep) as process:
        wait_until(lambda: lines(flashbench.folder / "out/tiny.journal") >= 1)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == code
    assert "interrupted" in stderr and "--resume" in stderr
    assert [path.name for path in (flashbench.folder / "out").iterdir()] == ["tiny.journal"]


def test_an_interrupted_case_has_no_times(flashbench):
    command = flashbench.command("run", "--seq", 16, "--providers", "naive,tiled", "--timeout", 600, "--max-samples", 1000000, "--json", "x")
    with subprocess.Popen(command, cwd=flashbench.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "2 rows: 2 skipped" in stdout
    assert all(row["performance"] is None for row in rows(flashbench.folder / "x").values())


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_what_opens_a_program(flashbench, number, code):
    program = flashbench.folder / "program.sh"
    program.write_text("#!/bin/sh\ntouch started\nexec sleep 1000\n")
    program.chmod(0o755)
    with flashbench.start("run", "--seq", 16, "--program", program) as process:
        wait_until((flashbench.folder / "started").exists)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == code
    assert stderr == "flashbench: interrupted\n"


def test_a_program_that_does_not_open_in_time_is_killed(flashbench):
    program = flashbench.folder / "program.sh"
    program.write_text("#!/bin/sh\necho $$ > pid\nexec sleep 1000\n")
    program.chmod(0o755)
    process = flashbench("run", "--seq", 16, "--program", program, "--start-timeout", 1, expect=6)
    assert "the device cannot be used: it did not end within 1 s" in process.stderr
    wait_until(lambda: not alive(int((flashbench.folder / "pid").read_text())))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_kills(with_faults, number):
    sweep = ["sweep", "--no-ceilings", "--config", with_faults.config(), "--out", "out"]
    with with_faults.start(*sweep, FLASHBENCH_FAULT="deaf") as process:
        wait_until(lambda: lines(with_faults.folder / "out/tiny.journal") >= 1)
        worker = worker_of(process)
        wait_until(lambda: ignores(worker, signal.SIGTERM))  # in the case that never ends
        process.send_signal(number)
        time.sleep(0.2)
        assert process.poll() is None  # it waits for the worker
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == -number
    wait_until(lambda: not alive(worker))


def test_the_worker_dies_with_its_parent(flashbench):
    sweep = ["sweep", "--no-ceilings", "--config", flashbench.config({**TINY, **LONG}), "--out", "out"]
    with flashbench.start(*sweep) as process:
        wait_until(lambda: lines(flashbench.folder / "out/tiny.journal") >= 1)
        worker = worker_of(process)
        process.kill()
    wait_until(lambda: not alive(worker))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signalled_worker_is_a_crashed_row(with_faults, number):
    """A signal from elsewhere ends the worker and not the sweep, which names the running provider."""
    config = with_faults.config(cases=[{"seq": [16, 33], "q_heads": 2, "head_dim": 16}])
    sweep = ["sweep", "--no-ceilings", "--config", config, "--out", "out"]
    with with_faults.start(*sweep, FLASHBENCH_FAULT="deaf@q33", FLASHBENCH_HEARS="yes") as process:
        wait_until(lambda: lines(with_faults.folder / "out/tiny.journal") >= 2)
        worker = worker_of(process)
        wait_until(lambda: ignores(worker, signal.SIGUSR1))  # in the case that never ends
        os.kill(worker, number)
        process.communicate(timeout=120)
    assert process.returncode == 4
    result = rows(with_faults.folder / "out/tiny.json")
    assert len(result) == 2 * 3
    ill = {key: row for key, row in result.items() if row["status"] != "ok"}
    ((key, provider),) = ill
    assert "q33" in key and provider == "plugin:faulty"
    assert ill[key, provider]["status"] == "crashed"
    assert f"killed by signal {int(number)}" in ill[key, provider]["reason"]
    assert ill[key, provider]["correctness"]["status"] == "not_checked"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_verify_with_a_signalled_worker_checks_the_rest(with_faults, number):
    verify = ["verify", "--config", with_faults.config(), "--csv", "rows.csv"]
    with with_faults.start(*verify, FLASHBENCH_FAULT="deaf@forward/fp32/none/bshd/b1/hq2/hkv2/q16",
                           FLASHBENCH_HEARS="yes") as process:
        wait_until(lambda: ignores(worker_of(process), signal.SIGUSR1))
        os.kill(worker_of(process), number)
        process.communicate(timeout=120)
    assert process.returncode == 4
    with open(with_faults.folder / "rows.csv") as file:
        statuses = [row["status"] for row in csv.DictReader(file)]
    assert statuses.count("crashed") == 1
    assert statuses.count("ok") == TINY_CASES * 3 - 1


def test_a_killed_worker_is_a_row_or_replaced(flashbench):
    """A SIGKILL from elsewhere, e.g. from the out-of-memory killer, ends only the worker."""
    sweep = ["sweep", "--no-ceilings", "--config", flashbench.config({**TINY, **LONG}), "--out", "out",
             "--set", "/measure/max_seconds=0.5"]
    with flashbench.start(*sweep) as process:
        wait_until(lambda: lines(flashbench.folder / "out/tiny.journal") >= 2)
        time.sleep(0.5)
        os.kill(worker_of(process), signal.SIGKILL)
        process.communicate(timeout=120)
    result = rows(flashbench.folder / "out/tiny.json")
    assert len(result) == TINY_CASES * len(PROVIDERS)
    ill = [row for row in result.values() if row["status"] != "ok"]
    assert process.returncode == (4 if ill else 0)
    assert all("killed by signal 9" in row["reason"] for row in ill) and len(ill) <= 1


def test_a_worker_that_kills_its_sweep_leaves_a_journal(with_faults, flashbench):
    sweep = ["sweep", "--no-ceilings", "--config", with_faults.config(), "--out", "out"]
    with_faults(*sweep, expect=-signal.SIGKILL, **fault("kill_parent@backward"))
    assert lines(with_faults.folder / "out/tiny.journal") == 3  # both forward cases are done
    with_faults(*sweep, "--resume")
    result = rows(with_faults.folder / "out/tiny.json")
    assert len(result) == TINY_CASES * 3
    assert {row["status"] for row in result.values()} == {"ok"}


def test_a_worker_is_not_for_people(flashbench):
    flashbench("worker", expect=2)
    assert "worker" not in flashbench("--help").stdout


# ---- a full disk


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB, if it can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder],
                           capture_output=True, text=True)
    if mount.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("free_kib", [0, 4, 8, 12, 16, 24])
def test_a_full_disk_keeps_the_old_result(flashbench, small_disk, all_rows, free_kib):
    sweep = ["sweep", "--no-ceilings", "--config", flashbench.config(), "--out", small_disk]
    flashbench(*sweep)
    old = {path.name: path.read_bytes() for path in small_disk.iterdir()}

    ballast = small_disk / "ballast"
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    os.truncate(ballast, max(0, ballast.stat().st_size - free_kib * 1024))
    full = flashbench(*sweep, expect=7)
    assert "No space left on device" in full.stderr
    for name, content in old.items():
        assert (small_disk / name).read_bytes() == content
    assert not list(small_disk.glob(".*.tmp"))

    ballast.unlink()
    flashbench(*sweep, "--resume")
    assert list(rows(small_disk / "tiny.json")) == all_rows
    assert not (small_disk / "tiny.journal").exists()
