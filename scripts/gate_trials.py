#!/usr/bin/env python3
"""Measures how far the verdicts of `flashbench compare` can be trusted.

    scripts/gate_trials.py run   --out DIR --seconds 480 --cores 2,3
    scripts/gate_trials.py run   --out DIR2 --seconds 480 --cores 4,5 --neighbours 3
    scripts/gate_trials.py judge --out DIR DIR2 --summary FILE --docs docs/comparing.md

`run` sweeps one config over and over, each time in new processes: unchanged, and in every step also
with a provider whose every run takes some percent more processor time (the plugin of tests/faults in
both). With --neighbours busy loops share its cores from the first sweep to the last. It can be called
again, and then goes on. `judge` compares each unchanged sweep with the next, and each slower one with
the unchanged one of its step: how often are unchanged rows called slower, and planted slow-downs
found? Several folders of the same kind of trial count as one. --add keeps the trials that the
summary has already, whose sweeps may be gone.
"""

import argparse
import collections
import contextlib
import itertools
import json
import math
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
MARKERS = ("<!-- gate trials: written by scripts/gate_trials.py -->", "<!-- end of gate trials -->")
UNCHANGED = 0.0
BUSY = "while True: sum(range(10000))"


# ---- running: {out}/setting.json, {out}/step_000/{name}/{config}.json


def planted_name(percent):
    return f"slower_by_{percent:g}"


def run_sweep(arguments, percent, result):
    command = [arguments.binary, "sweep", "--config", arguments.config, "--plugin",
               arguments.plugin, "--providers", "plugin:faulty", "--out", result.parent, "--quiet",
               "--no-ceilings", "--repetitions", arguments.repetitions]
    environment = {**os.environ, "FLASHBENCH_FAULT": f"slow={percent / 100:g}"}
    process = subprocess.run(list(map(str, command)), env=environment, capture_output=True,
                             stdin=subprocess.DEVNULL, text=True)
    if process.returncode != 0:
        raise RuntimeError(f"{process.args} ended with {process.returncode}:\n{process.stderr}")


@contextlib.contextmanager
def busy_neighbours(count):
    """Runs `count` busy processes on the cores of this one."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def keep_setting(arguments):
    setting = {"repetitions": arguments.repetitions, "neighbours": arguments.neighbours,
               "beside": arguments.beside, "cores": sorted(os.sched_getaffinity(0))}
    file = arguments.out / "setting.json"
    if file.exists() and json.loads(file.read_text()) != setting:
        raise RuntimeError(f"{file}: trials of another kind are there: {file.read_text().strip()}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(setting) + "\n")


def steps_done(folder):
    return len(list(folder.glob("step_*")))


def run_step(arguments, step):
    sweeps = [("unchanged", UNCHANGED)]
    if arguments.sizes:
        percent = arguments.sizes[step % len(arguments.sizes)]
        sweeps.append((planted_name(percent), percent))
    random.Random(step).shuffle(sweeps)
    stem = json.loads(Path(arguments.config).read_text())["name"]
    folder = arguments.out / "unfinished"
    shutil.rmtree(folder, ignore_errors=True)
    for name, percent in sweeps:
        run_sweep(arguments, percent, folder / name / f"{stem}.json")
    folder.rename(arguments.out / f"step_{step:03}")


def run(arguments):
    if arguments.cores:
        os.sched_setaffinity(0, arguments.cores)
    keep_setting(arguments)
    end = time.monotonic() + arguments.seconds
    step = steps_done(arguments.out)
    with busy_neighbours(arguments.neighbours):
        while True:  # at least one step
            run_step(arguments, step)
            step += 1
            print(f"{arguments.out}: {step} steps", file=sys.stderr)
            if time.monotonic() >= end:
                break


# ---- judging


def clopper_pearson(hits, trials, confidence=0.95):
    """The exact confidence interval of a probability, from `hits` in `trials`."""
    def at_least(k, p):  # P(Binomial(trials, p) >= k)
        return sum(math.comb(trials, i) * p**i * (1 - p) ** (trials - i)
                   for i in range(k, trials + 1))

    def solve(reached):  # the p at which `reached`, which is monotonic in p, becomes true
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if reached(middle) else (middle, high)
        return (low + high) / 2

    tail = (1 - confidence) / 2
    low = solve(lambda p: at_least(hits, p) > tail) if hits > 0 else 0.0
    high = solve(lambda p: 1 - at_least(hits + 1, p) < tail) if hits < trials else 1.0
    return low, high


def compare(binary, base, new):
    process = subprocess.run([binary, "compare", base, new, "--json", "-"], capture_output=True,
                             text=True)
    if process.returncode != 0:
        raise RuntimeError(f"{process.args} ended with {process.returncode}:\n{process.stderr}")
    return json.loads(process.stdout)


def summary_of(comparisons):
    """Counts over all comparisons of one kind."""
    counts = collections.Counter()
    for comparison in comparisons:
        counts.update(comparison["counts"])
    rows = sum(counts.values())
    sweeps = len(comparisons)
    with_verdict = {verdict: sum(c["counts"][verdict] > 0 for c in comparisons)
                    for verdict in ("SLOWER", "FASTER")}
    low, high = clopper_pearson(with_verdict["SLOWER"], sweeps)
    return {
        "sweeps": sweeps,
        "rows": rows,
        "verdicts": {verdict: count for verdict, count in counts.items() if count},
        "share_of_rows": {verdict: count / rows for verdict, count in counts.items() if count},
        "sweeps_with_slower": with_verdict["SLOWER"],
        "sweeps_with_faster": with_verdict["FASTER"],
        "slower_per_100_sweeps": 100 * with_verdict["SLOWER"] / sweeps,
        "slower_per_100_sweeps_ci95": [100 * low, 100 * high],
        "median_ratio": statistics.median(row["ratio"] for c in comparisons for row in c["rows"]
                                          if row["ratio"] is not None),
    }


def conditions(result):
    document = json.loads(result.read_text())
    device = document["devices"][0]
    return {"device": device["name"], "threads": device["threads"],
            "instructions": device["instructions"], "compiler": document["meta"]["compiler"],
            "git_commit": document["meta"]["git_commit"], "first": document["meta"]["started"]}


def sweeps_of(folder):
    """[{name: file}] of the steps of a folder, in order."""
    return [{file.parent.name: file for file in step.glob("*/*.json")}
            for step in sorted(folder.glob("step_*"))]


def pairs_of(folder):
    """{slow-down in percent: [(base, new)]}: a sweep and the next one, and planted ones with their bases."""
    steps = sweeps_of(folder)
    pairs = collections.defaultdict(list)
    for step, following in itertools.pairwise(steps):
        pairs[UNCHANGED].append((step["unchanged"], following["unchanged"]))
    for step in steps:
        for name, file in step.items():
            if name != "unchanged":
                pairs[float(name.rsplit("_", 1)[1])].append((step["unchanged"], file))
    return pairs


def samples_of(file):
    return {row["key"]: row["performance"]["measurement"]["samples_s"]
            for row in json.loads(file.read_text())["results"]}


def deviation(values):
    return 100 * statistics.stdev(values) / statistics.mean(values)


def rank_test_finds_slower(base, new, threshold=0.01, significance=0.05):
    """Whether Mann and Whitney's test alone (normal approximation), with Holm, finds a slower row."""
    smallest = 1.0
    for key, before in base.items():
        after = [sample / (1 + threshold) for sample in new[key]]
        wins = sum((a > b) + (a == b) / 2 for a in after for b in before)
        n, m = len(before), len(after)
        z = (wins - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)
        smallest = min(smallest, math.erfc(abs(z) / math.sqrt(2)) if z > 0 else 1.0)
    return smallest * len(base) <= significance


def noise(folders):
    """How much unchanged sweeps differ, and how often a rank test alone calls them slower."""
    deviations = {statistics.median: [], min: []}
    says_slower = []
    for folder in folders:
        sweeps = [samples_of(step["unchanged"]) for step in sweeps_of(folder)]
        says_slower += [rank_test_finds_slower(*pair) for pair in itertools.pairwise(sweeps)]
        for statistic, found in deviations.items():
            for key in sweeps[0]:
                found.append(deviation([statistic(sweep[key]) for sweep in sweeps]))
    return {
        "median_deviation_percent_least_and_most_of_rows": spread(deviations[statistics.median]),
        "minimum_deviation_percent_least_and_most_of_rows": spread(deviations[min]),
        "pairs_in_which_a_rank_test_alone_says_slower": sum(says_slower) / len(says_slower),
    }


def spread(values):
    return [min(values), max(values)]


def setting_of(folder):
    setting = json.loads((folder / "setting.json").read_text())
    device = conditions(sweeps_of(folder)[0]["unchanged"])["device"]
    return device, len(setting["cores"]), setting["neighbours"], setting["beside"], setting["repetitions"]


def judge_all(arguments):
    kinds = collections.defaultdict(list)
    for folder in arguments.out:
        if len(steps := sweeps_of(folder)) < 2:
            raise RuntimeError(f"{folder}: has {len(steps)} steps; judging needs 2 at least")
        kinds[setting_of(folder)].append(folder)
    summary = {"settings": []}
    for (_, cores, neighbours, beside, repetitions), folders in sorted(kinds.items()):
        trials = collections.defaultdict(list)
        for folder in folders:
            for percent, pairs in pairs_of(folder).items():
                trials[percent] += [compare(arguments.binary, *pair) for pair in pairs]
        summary["settings"].append({
            "conditions": conditions(sweeps_of(folders[0])[0]["unchanged"]), "cores": cores,
            "neighbours": neighbours, "beside": beside, "repetitions": repetitions,
            "groups": len(folders),
            "noise": noise(folders),
            "trials": [{"slower_by_percent": percent, **summary_of(comparisons)}
                       for percent, comparisons in sorted(trials.items())]})
    return summary


def percentage(trial, verdict):
    return f"{100 * trial['share_of_rows'].get(verdict, 0):.1f}%"


def load_name(setting):
    loops = f"{setting['neighbours']} busy loops" if setting["neighbours"] else ""
    return " and ".join(part for part in (loops, setting["beside"]) if part) or "nothing"


def setting_lines(number, setting):
    percents = "{:.1f} to {:.1f}%".format
    found = setting["noise"]
    where = setting["conditions"]
    return [f"{number}. {where['device']}, {setting['cores']} cores, {where['threads']} threads; beside "
            f"{load_name(setting)}; {setting['repetitions']} repetitions; {where['compiler']}; begun "
            f"{where['first']}.",
            "   Between unchanged sweeps a row's median varied by "
            f"{percents(*found['median_deviation_percent_least_and_most_of_rows'])} (standard "
            "deviation; the steadiest and the least",
            "   steady row), its minimum by "
            f"{percents(*found['minimum_deviation_percent_least_and_most_of_rows'])}. A rank test alone "
            "says slower in "
            f"{found['pairs_in_which_a_rank_test_alone_says_slower']:.0%} of the pairs."]


def trial_line(number, trial):
    planted = f"+{trial['slower_by_percent']:g}%" if trial["slower_by_percent"] else "nothing"
    low, high = trial["slower_per_100_sweeps_ci95"]
    return (f"| {number} | {planted} | {trial['sweeps']} "
            f"| {trial['slower_per_100_sweeps']:.1f} ({low:.1f} to {high:.1f}) "
            f"| {100 * trial['sweeps_with_faster'] / trial['sweeps']:.1f} | "
            + " | ".join(percentage(trial, verdict)
                         for verdict in ("SLOWER", "SAME", "INCONCLUSIVE", "FASTER")) + " |")


def markdown(summary):
    numbered = list(enumerate(summary["settings"], 1))
    lines = [line for number, setting in numbered for line in setting_lines(number, setting)]
    lines += ["", "| setting | planted | sweeps | sweeps that say SLOWER, of 100 (95% interval)"
              " | FASTER, of 100 | rows SLOWER | SAME | INCONCLUSIVE | FASTER |",
              "|---:|---|---:|---|---:|---:|---:|---:|---:|"]
    for number, setting in numbered:
        lines += [trial_line(number, trial) for trial in setting["trials"]]
    return "\n".join(lines) + "\n"


def write_into(path, table):
    """Replaces the text between the markers of a document."""
    text = path.read_text()
    begin, end = MARKERS
    replaced, count = re.subn(f"{re.escape(begin)}.*?{re.escape(end)}",
                              lambda _: f"{begin}\n{table}{end}", text, flags=re.DOTALL)
    if count != 1:
        raise RuntimeError(f"{path}: expected one section between {begin} and {end}, found {count}")
    path.write_text(replaced)


def judge(arguments):
    summary = judge_all(arguments)
    if arguments.add:
        summary["settings"] = json.loads(arguments.summary.read_text())["settings"] + summary["settings"]
    table = markdown(summary)
    if arguments.summary:
        arguments.summary.parent.mkdir(parents=True, exist_ok=True)
        arguments.summary.write_text(json.dumps(summary, indent=1) + "\n")
    if arguments.docs:
        write_into(arguments.docs, table)
    print(table, end="")


def numbers(kind):
    return lambda text: [kind(part) for part in text.split(",")]


def main():
    description, _, how = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(description=description, epilog=how,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run_verb = verbs.add_parser("run")
    run_verb.set_defaults(work=run)
    run_verb.add_argument("--out", type=Path, required=True, help="folder of the sweeps")
    run_verb.add_argument("--seconds", type=float, default=600, help="begin no other step after these")
    run_verb.add_argument("--plugin", default=REPOSITORY / "build/cpu/plugins/faulty.so")
    run_verb.add_argument("--config", default=REPOSITORY / "configs/gate_trials.json")
    run_verb.add_argument("--repetitions", type=int, default=3, help="of every sweep")
    run_verb.add_argument("--sizes", type=numbers(float), default=[3.0, 5.0],
                          help="slow-downs in percent, comma separated, one a step in turn")
    run_verb.add_argument("--cores", type=numbers(int), help="to run on, comma separated")
    run_verb.add_argument("--neighbours", type=int, default=0, help="busy loops on those cores")
    run_verb.add_argument("--beside", default="", help="what else runs there, for the table")
    judge_verb = verbs.add_parser("judge")
    judge_verb.set_defaults(work=judge)
    judge_verb.add_argument("--out", type=Path, nargs="+", required=True, help="folders of the sweeps")
    judge_verb.add_argument("--summary", type=Path, help="JSON file to write")
    judge_verb.add_argument("--add", action="store_true", help="keep the trials that the summary has already")
    judge_verb.add_argument("--docs", type=Path, help="document with the section to write anew")
    for verb in (run_verb, judge_verb):
        verb.add_argument("--binary", default=REPOSITORY / "build/cpu/bin/flashbench")
    arguments = parser.parse_args()
    if arguments.verb == "judge" and arguments.add and not arguments.summary:
        parser.error("--add: needs a --summary to add to")
    try:
        arguments.work(arguments)
    except RuntimeError as error:
        sys.exit(f"gate_trials: {error}")


if __name__ == "__main__":
    main()
