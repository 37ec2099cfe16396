"""The tables of scripts/tables.py about errors of O and of gradients, from results in JSON."""

import collections

from lib.table_rows import results, table

TENSORS = {"o": "O", "logsumexp": "logsumexp", "dq": "dQ", "dk": "dK", "dv": "dV"}


def calibration(paths):
    """The largest lambda (and error ratio) of each provider on each tensor and dtype."""
    worst = collections.defaultdict(dict)
    for _, result in results(paths):
        for error in result["correctness"]["tensors"]:
            found = [float("inf") if error[name] is None else error[name] for name in ("lambda", "ratio")]
            cell = worst[error["tensor"], result["case"]["dtype"]]
            cell[result["provider"]] = [*map(max, found, cell.get(result["provider"], found))]
    providers = list(dict.fromkeys(name for cell in worst.values() for name in cell))
    order = list(TENSORS)
    rows = [[TENSORS[tensor], dtype] + ["{:.2f} ({:.1f})".format(*cell[name]) if name in cell else ""
                                      for name in providers]
            for (tensor, dtype), cell in sorted(worst.items(), key=lambda item: order.index(item[0][0]))]
    return table(["tensor", "dtype", *(f"`{name}`" for name in providers)], rows)


def rows_with_recipes(paths):
    for _, row in results(paths):
        if row["status"] == "ok" and "recipe_cost" in row["correctness"]:
            yield row, row["correctness"]["recipe_cost"]


def recipes(paths):
    inputs = [("outliers", 128), ("outliers", 64), ("channel_offsets", 128), ("normal", 128)]
    costs = collections.defaultdict(dict)
    for row, cost in rows_with_recipes(paths):
        case = row["case"]
        if row["provider"] == "emulated":
            costs[case["quantize"]][case["distribution"], case["head_dim"]] = cost

    def cells(by_input):
        for which in inputs:
            total = by_input[which]["total"]
            yield f"{1e3 * total['rmse']:.2f} ({1e3 * total['low']:.1f}–{1e3 * total['high']:.1f})"
        outliers = by_input[inputs[0]]
        yield from (f"{1e3 * outliers[part]['rmse']:.2f}" for part in ("quant", "kernel"))

    names = [f"{distribution}, d = {head_dim}" for distribution, head_dim in inputs]
    return table(["recipe", *names, f"inputs' part, {names[0]}", "kernel's part"],
                 [[f"`{recipe}`", *cells(by_input)] for recipe, by_input in costs.items() if inputs[0] in by_input])


def outliers(paths):
    """Relative to O, because that is what fp16 rows have; the absolute errors of recipes are in `recipes`."""
    errors = collections.defaultdict(dict)
    for _, row in results(paths):
        case = row["case"]
        if row["status"] == "ok" and case["distribution"] == "outliers" and case["dtype"] == "fp16":
            error, = (tensor["rel_rms_err"] for tensor in row["correctness"]["tensors"] if tensor["tensor"] == "o")
            errors[f"fp16, `{row['provider']}`"][case["head_dim"]] = error
    for row, cost in rows_with_recipes(paths):
        case = row["case"]
        if row["provider"] == "emulated" and case["distribution"] == "outliers":
            errors[f"`{case['quantize']}`"][case["head_dim"]] = cost["total"]["rmse"] / cost["rms_o"]
    return table(["", "d = 128", "d = 64"],
                 [[name, *(f"{1e3 * by_head_dim[head_dim]:.3f}" for head_dim in (128, 64))]
                  for name, by_head_dim in errors.items()])


def promotion(paths):
    parts = collections.defaultdict(dict)
    for row, cost in rows_with_recipes(paths):
        if row["case"]["distribution"] == "mean_v":
            parts[row["case"]["kv_len"]][row["accumulator"]] = cost
    accumulators = sorted({name for by_accumulator in parts.values() for name in by_accumulator}, reverse=True)

    def cells(by_accumulator):
        for name in accumulators:
            cost = by_accumulator[name]
            yield f"{1e2 * cost['kernel']['rmse'] / cost['rms_o']:.2f}%"
        cost = by_accumulator[accumulators[0]]
        yield f"{1e2 * cost['quant']['rmse'] / cost['rms_o']:.2f}%"

    return table(["keys", *(f"kernel's part, {name}" for name in accumulators), "inputs' part"],
                 [[str(keys), *cells(by_accumulator)] for keys, by_accumulator in sorted(parts.items())])
