#!/usr/bin/env python3
"""Shows what the criterion of flashbench and those of other projects' tests catch: runs the program
criteria_table, keeps its figures in results/cpu/criteria.json and writes the table between the two
markers in docs/verifying.md. Takes a few minutes.

    scripts/criteria.py            run, and write both files
    scripts/criteria.py --check    run, write nothing, and fail if the table would change
    scripts/criteria.py --no-run   use the figures that are there (also with --check)
"""

import argparse
import csv
import difflib
import json
import math
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PROGRAM = REPOSITORY / "build/cpu/tests/mutants/criteria_table"
FIGURES = REPOSITORY / "results/cpu/criteria.json"
PAGE = REPOSITORY / "docs/verifying.md"
BEGIN = "<!-- criteria table: written by scripts/criteria.py -->"
END = "<!-- end of criteria table -->"

CRITERIA = {
    "flash_attention_2": "FlashAttention-2",
    "flash_attention_3": "FlashAttention-3",
    "cudnn_frontend": "cuDNN frontend",
    "cutlass_88": "CUTLASS 88",
    "flashinfer": "FlashInfer",
    "pytorch": "PyTorch",
    "flashbench": "flashbench",
}
MUTANTS = {
    "zeros": "all zeros",
    "dropped_key_tile": "one 64-key tile dropped",
    "last_key_ignored": "last key of every row ignored",
    "scale_one_percent": "softmax scale +1%",
    "p_in_bf16": "P kept in bf16 (fp16 only)",
    "other_causal_corner": "other causal corner",
    "next_kv_head": "next K/V head",
    "missing_rescale": "O not rescaled",
    "unmasked_padding": "padding keys not masked",
    "stale_row": "one row never written",
    "accumulator_race": "race on the last row's sum",
    "d_omitted": "D omitted",
    "dq_misses_tile": "dQ misses the last key tile",
    "dk_misses_rows": "dK misses 16 rows",
    "dv_unnormalised": "dV not normalised in one tile",
    "correct": "*correct kernels: false alarms*",
}


def run():
    """Returns the program's rows, with their origin."""
    command = ["cmake", "--build", "--preset", "cpu", "--target", "criteria_table"]
    subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    output = subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout
    commit = subprocess.run(["git", "describe", "--always", "--dirty", "--exclude=*"],
                            cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    return {"commit": commit.strip(), "results": list(csv.DictReader(output.splitlines()))}


def to_json(figures):
    rows = ",\n".join("  " + json.dumps(row) for row in figures["results"])
    return f'{{\n "commit": {json.dumps(figures["commit"])},\n "results": [\n{rows}\n ]\n}}\n'


def count(rows, criterion):
    """The number of rows that a criterion caught, as a cell of the table."""
    outcomes = [row[criterion] for row in rows]
    if "" in outcomes:
        return "–"
    caught = outcomes.count("caught")
    return {0: "none", len(outcomes): "all"}.get(caught, f"{caught} of {len(outcomes)}")


def rounded(value, rounding):
    """Formats two digits: 0.47, 9.4, 940, 2.0·10⁴."""
    exponent = math.floor(math.log10(value))
    digits = rounding(value / 10 ** (exponent - 1)) / 10
    if exponent < 4:
        return f"{digits * 10**exponent:.{max(1 - exponent, 0)}f}"
    return f"{digits:.1f}·10" + str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def lambdas(rows, mutant):
    """The largest lambda of correct kernels, or the smallest of a defect."""
    if any(int(row["nonfinite"]) for row in rows):
        return "non-finite"
    values = [float(row["lambda"]) for row in rows]
    if mutant == "correct":
        return f"≤ {rounded(max(values), math.ceil)}"
    return f"≥ {rounded(min(values), math.floor)}"


def table(figures):
    lines = ["| defect | pass | " + " | ".join(CRITERIA.values()) + " | λ |",
             "|---|---|" + "---|" * (len(CRITERIA) + 1)]
    for passed in ("forward", "backward"):
        for mutant, label in MUTANTS.items():
            rows = [row for row in figures["results"]
                    if (row["mutant"], row["pass"]) == (mutant, passed)]
            if rows:
                cells = [count(rows, criterion) for criterion in CRITERIA]
                lines.append("| " + " | ".join([label, passed, *cells, lambdas(rows, mutant)]) + " |")
    return "\n".join(lines)


def with_table(page, text):
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"criteria.py: {PAGE}: expected the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true",
                        help="write nothing; fail if the table would change")
    parser.add_argument("--no-run", action="store_true",
                        help=f"take the figures of {FIGURES.relative_to(REPOSITORY)}")
    arguments = parser.parse_args()

    figures = json.loads(FIGURES.read_text(encoding="utf-8")) if arguments.no_run else run()
    page = PAGE.read_text(encoding="utf-8")
    new_page = with_table(page, table(figures))
    if arguments.check:
        difference = difflib.unified_diff(page.splitlines(), new_page.splitlines(),
                                          "docs/verifying.md", "what it would be", lineterm="", n=0)
        sys.exit("\n".join(difference) or None)
    if not arguments.no_run:
        FIGURES.write_text(to_json(figures), encoding="utf-8")
    PAGE.write_text(new_page, encoding="utf-8")


if __name__ == "__main__":
    main()
