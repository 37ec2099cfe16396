#!/usr/bin/env python3
"""Prints the largest lambda, and the largest error ratio, that each provider reached on each tensor
and dtype in a result file, as a Markdown table: the calibration in docs/measuring.md.

    flashbench verify --config configs/calibration.json --json FILE
    scripts/calibration.py FILE
"""

import argparse
import collections
import json
import sys


def worst_by_tensor(results):
    """{(tensor, dtype): {provider: (largest lambda, largest ratio)}}, in order of appearance."""
    worst = collections.defaultdict(dict)
    for result in results:
        for error in result["correctness"]["tensors"]:
            figures = (error["lambda"], error["ratio"])
            if None in figures:  # not finite: such a row has failed
                figures = (float("inf"), float("inf"))
            cell = worst[error["tensor"], result["case"]["dtype"]]
            before = cell.get(result["provider"], (0, 0))
            cell[result["provider"]] = tuple(map(max, before, figures))
    return worst


def markdown(worst):
    providers = list(dict.fromkeys(name for cell in worst.values() for name in cell))
    lines = ["| tensor | dtype | " + " | ".join(f"`{name}`" for name in providers) + " |",
             "|---|---|" + "---|" * len(providers)]
    for (tensor, dtype), cell in worst.items():
        figures = ["{:.2f} ({:.1f})".format(*cell[name]) if name in cell else "" for name in providers]
        lines.append(f"| {tensor} | {dtype} | " + " | ".join(figures) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("result", help="result file (JSON) of flashbench verify or sweep")
    arguments = parser.parse_args()
    try:
        with open(arguments.result, encoding="utf-8") as file:
            results = json.load(file)["results"]
        print(markdown(worst_by_tensor(results)))
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"calibration.py: {arguments.result}: not a flashbench result file: {error}")


if __name__ == "__main__":
    main()
