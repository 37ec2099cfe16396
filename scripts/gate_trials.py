#!/usr/bin/env python3
"""Measures how far the verdicts of `flashbench compare` can be trusted on this machine.

    scripts/gate_trials.py run   --out DIR
    scripts/gate_trials.py judge --out DIR --summary FILE --docs docs/measuring.md

`run` sweeps one config over and over, each time in new processes; beside some of these unchanged
sweeps also with a provider whose every run takes 3%, 5% or 10% longer (the plugin of tests/faults in
all of them). It skips what is there already, so it can be
stopped at any time and called again. `judge` compares each sweep with the next, and slower ones with
the unchanged one of their time: how often are unchanged rows called slower, and planted slow-downs
found? For N repetitions it takes N sweeps in a row as one, which is what `sweep --repetitions N` runs.
"""

import argparse
import collections
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
MARKERS = ("<!-- gate trials: written by scripts/gate_trials.py -->", "<!-- end of gate trials -->")
UNCHANGED = 0.0


# ---- what there is to run: {step}/{name}/{config}.json


def planted_name(percent):
    return f"slower_by_{percent:g}"


def sweeps_of_step(step, arguments):
    """{name: slow-down in percent}. Three steps in a row of every 21 have the planted ones."""
    sweeps = {"unchanged": UNCHANGED}
    if step // 3 % 7 == 0:
        sweeps |= {planted_name(percent): percent for percent in arguments.sizes}
    return sweeps


def result_file(arguments, step, name):
    stem = json.loads(Path(arguments.config).read_text())["name"]
    return Path(arguments.out) / f"step_{step:03}" / name / f"{stem}.json"


def run_sweep(arguments, percent, result):
    command = [arguments.binary, "sweep", "--config", arguments.config, "--plugin",
               arguments.plugin, "--providers", "plugin:faulty", "--out", result.parent, "--quiet",
               "--no-ceilings"]
    environment = {**os.environ, "FLASHBENCH_FAULT": f"slow={percent / 100:g}"}
    process = subprocess.run(list(map(str, command)), env=environment, capture_output=True,
                             stdin=subprocess.DEVNULL, text=True)
    if process.returncode != 0:
        raise RuntimeError(f"{process.args} ended with {process.returncode}:\n{process.stderr}")


def run(arguments):
    for step in range(arguments.pairs + 1):
        sweeps = list(sweeps_of_step(step, arguments).items())
        random.Random(step).shuffle(sweeps)
        for name, percent in sweeps:
            result = result_file(arguments, step, name)
            if not result.exists():
                run_sweep(arguments, percent, result)
        print(f"step {step} of {arguments.pairs}", file=sys.stderr)


# ---- what they say


def clopper_pearson(hits, trials, confidence=0.95):
    """The exact interval of a probability of which `hits` of `trials` were seen."""
    def at_least(k, p):  # P(Binomial(trials, p) >= k)
        return sum(math.comb(trials, i) * p**i * (1 - p) ** (trials - i)
                   for i in range(k, trials + 1))

    def solve(reached):  # the p at which `reached`, which rises with p, becomes true
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


def merged(files, out):
    """One result of several sweeps, as of `sweep --repetitions`: their samples one after another."""
    results = [json.loads(file.read_text()) for file in files]
    rows = [{row["key"]: row for row in result["results"]} for result in results]
    for key, row in rows[0].items():
        for name in ("measurement", "gemm_ceiling"):
            parts = [other[key]["performance"][name]["samples_s"] for other in rows]
            row["performance"][name]["samples_s"] = [sample for part in parts for sample in part]
            row["performance"][name]["samples_per_process"] = [len(part) for part in parts]
    out.write_text(json.dumps(results[0]))
    return out


def sides(arguments, repetitions, folder):
    """{(group, name): file}, a group being `repetitions` steps in a row."""
    files = {}
    for group in range((arguments.pairs + 1) // repetitions):
        steps = range(group * repetitions, (group + 1) * repetitions)
        for name in sweeps_of_step(steps[0], arguments):
            parts = [result_file(arguments, step, name) for step in steps]
            if not all(part.exists() for part in parts):
                continue
            out = Path(folder) / f"{repetitions}_{group}_{name}.json"
            files[group, name] = parts[0] if repetitions == 1 else merged(parts, out)
    return files


def pairs_of(files):
    """{slow-down in percent: [(base, new)]}: a group and the next, and planted ones and theirs."""
    pairs = collections.defaultdict(list)
    for (group, name), new in files.items():
        if name != "unchanged":
            pairs[float(name.rsplit("_", 1)[1])].append((files[group, "unchanged"], new))
        elif (group + 1, name) in files:
            pairs[UNCHANGED].append((new, files[group + 1, name]))
    return pairs


def samples_of(file):
    return {row["key"]: row["performance"]["measurement"]["samples_s"]
            for row in json.loads(file.read_text())["results"]}


def deviation(values):
    return 100 * statistics.stdev(values) / statistics.mean(values)


def rank_test_finds_slower(base, new, threshold=0.01, significance=0.05):
    """Whether Mann and Whitney's test alone (normal approximation), with Holm, has a slower row."""
    smallest = 1.0
    for key, before in base.items():
        after = [sample / (1 + threshold) for sample in new[key]]
        wins = sum((a > b) + (a == b) / 2 for a in after for b in before)
        n, m = len(before), len(after)
        z = (wins - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)
        smallest = min(smallest, math.erfc(abs(z) / math.sqrt(2)) if z > 0 else 1.0)
    return smallest * len(base) <= significance


def noise(files):
    """How much unchanged sweeps differ, and what a rank test alone makes of it."""
    sweeps = [samples_of(file) for (_, name), file in sorted(files.items()) if name == "unchanged"]
    by_row = {key: [sweep[key] for sweep in sweeps] for key in sweeps[0]}

    def between_sweeps(statistic):
        deviations = [deviation([statistic(samples) for samples in row]) for row in by_row.values()]
        return [min(deviations), max(deviations)]

    pairs = list(zip(sweeps, sweeps[1:]))
    return {
        "median_deviation_percent_least_and_most_of_rows": between_sweeps(statistics.median),
        "minimum_deviation_percent_least_and_most_of_rows": between_sweeps(min),
        "pairs_in_which_a_rank_test_alone_says_slower":
            sum(rank_test_finds_slower(*pair) for pair in pairs) / len(pairs),
    }


def judge_all(arguments):
    first = result_file(arguments, 0, "unchanged")
    if not first.exists():
        raise RuntimeError(f"{first}: no such file; nothing was run yet")
    summary = {"conditions": conditions(first), "trials": []}
    with tempfile.TemporaryDirectory() as folder:
        summary["noise"] = noise(sides(arguments, 1, folder))
        for repetitions in arguments.repetitions:
            for percent, pairs in sorted(pairs_of(sides(arguments, repetitions, folder)).items()):
                comparisons = [compare(arguments.binary, *pair) for pair in pairs]
                summary["trials"].append({"repetitions": repetitions,
                                          "slower_by_percent": percent,
                                          **summary_of(comparisons)})
    return summary


def percentage(trial, verdict):
    return f"{100 * trial['share_of_rows'].get(verdict, 0):.1f}%"


def markdown(summary):
    lines = ["{device}, {threads} threads a sweep; {compiler}; begun {first}.".format(
        **summary["conditions"]), ""]
    percents = "{:.1f} to {:.1f}%".format
    lines += [
        "Between unchanged sweeps a row's median varied by "
        + percents(*summary["noise"]["median_deviation_percent_least_and_most_of_rows"])
        + " (standard deviation; the",
        "steadiest and the least steady row), its minimum by "
        + percents(*summary["noise"]["minimum_deviation_percent_least_and_most_of_rows"])
        + ". A rank test alone, with Holm's",
        "correction and the same threshold, calls a row slower in {:.0%} of the pairs.".format(
            summary["noise"]["pairs_in_which_a_rank_test_alone_says_slower"]), ""]
    lines += ["| repetitions | planted | sweeps | rows | sweeps that say SLOWER, of 100 (95% interval)"
              " | rows SLOWER | SAME | INCONCLUSIVE | FASTER |",
              "|---:|---|---:|---:|---|---:|---:|---:|---:|"]
    for trial in summary["trials"]:
        planted = f"+{trial['slower_by_percent']:g}%" if trial["slower_by_percent"] else "nothing"
        low, high = trial["slower_per_100_sweeps_ci95"]
        lines.append(
            f"| {trial['repetitions']} | {planted} | {trial['sweeps']} | {trial['rows']} "
            f"| {trial['slower_per_100_sweeps']:.1f} ({low:.1f} to {high:.1f}) | "
            + " | ".join(percentage(trial, verdict)
                         for verdict in ("SLOWER", "SAME", "INCONCLUSIVE", "FASTER")) + " |")
    return "\n".join(lines) + "\n"


def write_into(path, table):
    """Replaces what is between the markers of a document."""
    text = path.read_text()
    begin, end = MARKERS
    replaced, count = re.subn(f"{re.escape(begin)}.*?{re.escape(end)}",
                              lambda _: f"{begin}\n{table}{end}", text, flags=re.DOTALL)
    if count != 1:
        raise RuntimeError(f"{path}: expected one section between {begin} and {end}, found {count}")
    path.write_text(replaced)


def judge(arguments):
    summary = judge_all(arguments)
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
    for name, work in (("run", run), ("judge", judge)):
        verb = verbs.add_parser(name)
        verb.set_defaults(work=work)
        verb.add_argument("--out", type=Path, required=True, help="folder of the sweeps")
        verb.add_argument("--binary", default=REPOSITORY / "build/cpu/bin/flashbench")
        verb.add_argument("--plugin", default=REPOSITORY / "build/cpu/plugins/faulty.so")
        verb.add_argument("--config", default=REPOSITORY / "configs/gate.json")
        verb.add_argument("--pairs", type=int, default=200, help="of an unchanged sweep and the next")
        verb.add_argument("--sizes", type=numbers(float), default=[3.0, 5.0, 10.0],
                          help="slow-downs in percent, comma separated")
        if name == "judge":
            verb.add_argument("--repetitions", type=numbers(int), default=[1, 3],
                              help="sweeps in a row that are taken as one, comma separated")
            verb.add_argument("--summary", type=Path, help="JSON file to write")
            verb.add_argument("--docs", type=Path, help="document with the section to write anew")
    arguments = parser.parse_args()
    try:
        arguments.work(arguments)
    except RuntimeError as error:
        sys.exit(f"gate_trials: {error}")


if __name__ == "__main__":
    main()
