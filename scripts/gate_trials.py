#!/usr/bin/env python3
"""Measures how far the verdicts of `flashbench compare` can be trusted on this machine.

    scripts/gate_trials.py run   --out DIR --jobs "0-3;4-7;8-11;12-15"
    scripts/gate_trials.py judge --out DIR --summary FILE --docs docs/measuring.md

`run` sweeps one config over and over: pairs of unchanged sweeps, and sweeps in which every run of
the provider takes 3%, 5% or 10% longer (the provider `faulty` of build/cpu/bin/flashbench_with_faults
in all of them). It skips what is there already, so it can be stopped at any time and called again.
`judge` compares the pairs and says how often unchanged rows were called slower, and planted
slow-downs were found; it can be repeated without running anything.
"""

import argparse
import collections
import concurrent.futures
import json
import math
import os
import queue
import random
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
MARKERS = ("<!-- gate trials: written by scripts/gate_trials.py -->", "<!-- end of gate trials -->")
UNCHANGED = 0.0


# ---- what there is to run: {repetitions}/{pair}/{name}/gate.json


def planted_name(percent):
    return f"slower_by_{percent:g}"


def sweeps_of_pair(pair, arguments):
    """{name: slow-down in percent} of the sweeps that pair number `pair` consists of."""
    sweeps = {"base": UNCHANGED, "again": UNCHANGED}
    if pair < arguments.planted_pairs:
        sweeps |= {planted_name(percent): percent for percent in arguments.sizes}
    return sweeps


def result_file(out, repetitions, pair, name, config):
    stem = json.loads(Path(config).read_text())["name"]
    return Path(out) / f"repetitions_{repetitions}" / f"pair_{pair}" / name / f"{stem}.json"


def run_sweep(arguments, cpus, repetitions, percent, result):
    command = [arguments.binary, "sweep", "--config", arguments.config, "--providers", "faulty",
               "--out", result.parent, "--quiet", "--no-ceilings"]
    if repetitions > 1:
        command += ["--repetitions", repetitions]
    if cpus:
        command = ["taskset", "-c", cpus, *command]
    environment = {**os.environ, "FLASHBENCH_FAULT": f"slow={percent / 100:g}"}
    process = subprocess.run(list(map(str, command)), env=environment, capture_output=True,
                             stdin=subprocess.DEVNULL, text=True)
    if process.returncode != 0:
        raise RuntimeError(f"{process.args} ended with {process.returncode}:\n{process.stderr}")


def run_pair(arguments, cpus, repetitions, pair, deadline):
    """All sweeps of a pair on the same CPUs, in an order of its own; returns how many were run."""
    sweeps = list(sweeps_of_pair(pair, arguments).items())
    random.Random(f"{repetitions} {pair}").shuffle(sweeps)
    done = 0
    for name, percent in sweeps:
        result = result_file(arguments.out, repetitions, pair, name, arguments.config)
        if result.exists():
            continue
        if time.monotonic() > deadline:
            break
        run_sweep(arguments, cpus, repetitions, percent, result)
        done += 1
    return done


def run(arguments):
    deadline = time.monotonic() + (arguments.seconds or math.inf)
    cpu_sets = [cpus.strip() for cpus in arguments.jobs.split(";")] if arguments.jobs else [None]
    work = queue.SimpleQueue()
    for pair in range(arguments.pairs):
        for repetitions in arguments.repetitions:
            work.put((repetitions, pair))

    def worker(cpus):
        done = 0
        while time.monotonic() < deadline:
            try:
                repetitions, pair = work.get_nowait()
            except queue.Empty:
                break
            done += run_pair(arguments, cpus, repetitions, pair, deadline)
        return done

    with concurrent.futures.ThreadPoolExecutor(len(cpu_sets)) as pool:
        done = sum(pool.map(worker, cpu_sets))
    missing = sum(not result_file(arguments.out, repetitions, pair, name, arguments.config).exists()
                  for repetitions in arguments.repetitions for pair in range(arguments.pairs)
                  for name in sweeps_of_pair(pair, arguments))
    print(f"{done} sweeps were run, {missing} are left", file=sys.stderr)


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


def judge_all(arguments):
    summary = {"conditions": None, "trials": []}
    for repetitions in arguments.repetitions:
        by_percent = collections.defaultdict(list)
        for pair in range(arguments.pairs):
            base = result_file(arguments.out, repetitions, pair, "base", arguments.config)
            for name, percent in sweeps_of_pair(pair, arguments).items():
                new = result_file(arguments.out, repetitions, pair, name, arguments.config)
                if name == "base" or not base.exists() or not new.exists():
                    continue
                summary["conditions"] = summary["conditions"] or conditions(base)
                by_percent[percent].append((base, new))
        for percent, pairs in sorted(by_percent.items()):
            with concurrent.futures.ThreadPoolExecutor() as pool:
                comparisons = list(pool.map(lambda pair: compare(arguments.binary, *pair), pairs))
            summary["trials"].append({"repetitions": repetitions, "slower_by_percent": percent,
                                      **summary_of(comparisons)})
    return summary


def percentage(trial, verdict):
    return f"{100 * trial['share_of_rows'].get(verdict, 0):.1f}%"


def markdown(summary):
    lines = ["{device}, {threads} threads a sweep; {compiler}; begun {first}.".format(
        **summary["conditions"]), ""]
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
    if not summary["trials"]:
        raise RuntimeError(f"{arguments.out}: no pair of results is there yet")
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
        verb.add_argument("--binary", default=REPOSITORY / "build/cpu/bin/flashbench_with_faults")
        verb.add_argument("--config", default=REPOSITORY / "configs/gate.json")
        verb.add_argument("--pairs", type=int, default=200, help="of unchanged sweeps")
        verb.add_argument("--planted-pairs", type=int, default=50,
                          help="how many of them also get a sweep with each slow-down")
        verb.add_argument("--sizes", type=numbers(float), default=[3.0, 5.0, 10.0],
                          help="slow-downs in percent, comma separated")
        verb.add_argument("--repetitions", type=numbers(int), default=[1, 3],
                          help="of each sweep, comma separated")
        if name == "run":
            verb.add_argument("--jobs", help='sets of CPUs that sweep side by side, "0-3;4-7"')
            verb.add_argument("--seconds", type=float, help="start no sweep after so long")
        else:
            verb.add_argument("--summary", type=Path, help="JSON file to write")
            verb.add_argument("--docs", type=Path, help="document with the section to write anew")
    arguments = parser.parse_args()
    try:
        arguments.work(arguments)
    except RuntimeError as error:
        sys.exit(f"gate_trials: {error}")


if __name__ == "__main__":
    main()
