#!/usr/bin/python3
"""Compares flashbench's hardware counters with Nsight Compute's, kernel by kernel, as Markdown.

  scripts/compare_with_ncu.py --binary build/cpu/bin/flashbench [--case N ...] [--json FILE]

Both count the same launches in the same state: flashbench in a process of its own, right after a run
of the same provider; ncu the launches of such runs in another process, without touching clocks or
caches. Needs a GPU, ncu, and the right to read counters. Exit code 1 if any figure is off by more
than 2%.
"""
import argparse
import csv
import json
import re
import subprocess
import sys

TOLERANCE = 0.02
SMALL = 2**20  # bytes or operations: below this, differences are noise of the counters

# Runs before the one that ncu counts, which is the fourth of its process. That run follows another
# one with nothing but a wait in between (the launch's host time is measured there). Later runs
# would find an L2 that ncu has cleaned: it counted 4% fewer bytes written for them.
SKIPPED_RUNS = 3

METRICS = ["dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_bytes.sum",
           "sm__ops_path_tensor_src_bf16_dst_fp32.sum"]


def case(provider, passing, mask, heads, length, head_dim, batch):
    return ["--providers", provider, "--pass", passing, "--mask", mask, "--q-heads", str(heads), "--seq",
            str(length), "--head-dim", str(head_dim), "--batch", str(batch)]


CASES = [
    case("tiled", "forward", "none", 32, 4096, 64, 4),
    case("tiled", "forward", "causal_bottom_right", 16, 2048, 128, 8),
    case("tiled", "forward", "none", 16, 16384, 128, 1),
    case("tiled", "backward", "none", 32, 2048, 64, 8),
    case("tiled:fa1", "forward", "none", 32, 2048, 64, 8),
    case("tiled:simt", "forward", "none", 32, 1024, 64, 16),
    case("tiled", "forward", "none", 8, 4096, 256, 4),
    case("tiled", "backward", "causal_bottom_right", 16, 4096, 128, 4),
]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0 and "ncu" not in command[0]:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def our_counts(binary, flags):
    """Returns the kernels of a run, and flashbench's counts for each."""
    done = run([binary, "run", "--device", "cuda", "--dtype", "bf16", *flags, "--counters", "on",
                "--min-samples", "3", "--max-samples", "3", "--json", "-", "--quiet"])
    record = json.loads(done.stdout)["results"][0]
    counters = record["traffic"]["counters"]
    if counters["status"] != "ok":
        sys.exit(f"flashbench cannot count: {counters['status']}: {counters['reason']}")
    names = [kernel["name"] for kernel in record["kernels"]]
    launches = counters.get("launches", [counters["run"]])
    if len(launches) != len(names):
        sys.exit(f"{len(launches)} ranges were counted for the {len(names)} kernels {names}")
    return names, launches


def base_name(name):
    """a::b<c::d>(...)::e<f> -> e"""
    flat = name
    while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)", "", flat)) != flat:
        flat = shorter
    return flat.split("::")[-1].strip()


def ncu_counts(binary, flags, names):
    """Returns ncu's counts for each of those kernels."""
    bases = "|".join(sorted({base_name(name) for name in names}))
    done = run(["ncu", "--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw",
                "--print-units", "base", "--print-kernel-base", "function", "--metrics", ",".join(METRICS),
                "--kernel-name", rf"regex:^(.*\b)?({bases})(\b.*)?$",
                "--launch-skip", str(SKIPPED_RUNS * len(names)),
                "--launch-count", str(len(names)), "--kill", "on",
                binary, "run", "--device", "cuda", "--dtype", "bf16", *flags, "--no-isolate", "--counters",
                "off", "--min-samples", "1", "--max-samples", "1", "--warmup", "0", "--quiet"])
    lines = done.stdout.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        sys.exit(f"ncu counted nothing:\n{done.stdout}{done.stderr}")
    rows = [row for row in csv.DictReader(lines[start:]) if row["ID"]]
    if [row["Kernel Name"] for row in rows] != [base_name(name) for name in names]:
        sys.exit(f"ncu counted {[row['Kernel Name'] for row in rows]} where {names} were expected")
    return [{metric: float(row[metric].replace(",", "")) for metric in METRICS} for row in rows]


def short(flags):
    given = dict(zip(flags[::2], flags[1::2]))
    mask = "full" if given["--mask"] == "none" else "causal"
    return (f"{given['--providers']} {given['--pass']} {mask} b{given['--batch']} h{given['--q-heads']} "
            f"s{given['--seq']} d{given['--head-dim']}")


def compare(binary, flags):
    names, ours = our_counts(binary, flags)
    rows = []
    for name, own, theirs in zip(names, ours, ncu_counts(binary, flags, names)):
        for metric in METRICS:
            difference = own[metric] - theirs[metric]
            rows.append({"case": short(flags), "kernel": base_name(name), "metric": metric,
                         "flashbench": own[metric], "ncu": theirs[metric],
                         "difference": difference / theirs[metric] if theirs[metric] else 0.0,
                         "agrees": abs(difference) <= max(TOLERANCE * theirs[metric], SMALL)})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/cpu/bin/flashbench")
    parser.add_argument("--case", type=int, nargs="*", default=range(len(CASES)), metavar="N",
                        help=f"0 to {len(CASES) - 1}; all of them unless some are named")
    parser.add_argument("--json", help="write every figure to this file")
    arguments = parser.parse_args()

    print("| case | kernel | metric | flashbench | ncu | difference |")
    print("|---|---|---|---:|---:|---:|")
    rows = []
    for number in arguments.case:
        for row in compare(arguments.binary, CASES[number]):
            rows.append(row)
            print(f"| {row['case']} | {row['kernel']} | `{row['metric']}` | {row['flashbench']:.0f} | "
                  f"{row['ncu']:.0f} | {100 * row['difference']:+.2f}%"
                  f"{'' if row['agrees'] else ' **off**'} |", flush=True)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    wrong = [row for row in rows if not row["agrees"]]
    print(f"\n{len(rows) - len(wrong)} of {len(rows)} figures agree within {100 * TOLERANCE:.0f}%")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
