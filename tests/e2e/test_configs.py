"""The shipped configs and the shipped schema, checked by an independent validator."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SCHEMA = json.loads((CONFIGS / "sweep.schema.json").read_text())
SHIPPED = sorted(p for p in CONFIGS.glob("*.json") if p.name != "sweep.schema.json")


def errors(document):
    return [
        "/".join(map(str, error.absolute_path)) + ": " + error.message
        for error in Draft7Validator(SCHEMA).iter_errors(document)
    ]


def without_duplicates(pairs):
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), f"duplicate keys among {keys}"
    return dict(pairs)


def nodes(node, place=""):
    """Yields every subschema with its place."""
    yield place, node
    for group in ("properties", "definitions"):
        for name, child in node.get(group, {}).items():
            yield from nodes(child, f"{place}/{group}/{name}")
    if "items" in node:
        yield from nodes(node["items"], place + "/items")


def test_schema_is_draft_7():
    Draft7Validator.check_schema(SCHEMA)


def test_defaults_and_examples_follow_the_schema():
    checked = 0
    for place, node in nodes(SCHEMA):
        values = node.get("examples", []) + ([node["default"]] if "default" in node else [])
        own = {**node, "definitions": SCHEMA["definitions"]}
        for value in values:
            assert Draft7Validator(own).is_valid(value), f"{place}: {value!r}"
            checked += 1
    assert checked > 20


def test_these_configs_ship():
    names = [p.stem for p in SHIPPED]
    assert names == [
        "a100", "batch_invariant", "calibration", "chunks", "cpu", "decode", "decode_e4m3", "decode_paged", "fp16", "fp16_outliers", "fp32", "fp8", "fp8_speed", "gate", "gate_trials", "generation", "gpu_kernels",
        "grouped", "h200", "ladder", "models", "packed", "quick", "random_shapes", "sanitize", "serving", "short", "split", "split_1m", "split_decode", "split_decode_gpus", "split_gpus", "split_h200", "varlen", "windows",
    ]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_config_follows_the_schema(path):
    config = json.loads(path.read_text(), object_pairs_hook=without_duplicates)
    assert errors(config) == []
    assert (path.parent / config["$schema"]).resolve() == CONFIGS / "sweep.schema.json"
    assert config["name"] == path.stem


@pytest.mark.parametrize(
    "change, place",
    [
        ({"devcie": "cpu"}, ""),
        ({"schema_version": 2}, "schema_version"),
        ({"device": "gpu"}, "device"),
        ({"providers": []}, "providers"),
        ({"measure": {"cache": "hot"}}, "measure/cache"),
        ({"cases": [{"seq": 8, "q_heads": 1}]}, "cases/0"),
        ({"cases": [{"seq": 8, "q_heads": 1, "head_dim": 60}]}, "cases/0/head_dim"),
        ({"cases": [{"seq": 0, "q_heads": 1, "head_dim": 64}]}, "cases/0/seq"),
    ],
)
def test_mistakes_are_found(change, place):
    valid = {"schema_version": 1, "name": "x", "cases": [{"seq": 8, "q_heads": 1, "head_dim": 64}]}
    assert errors(valid) == []
    found = errors({**valid, **change})
    assert [error.split(":")[0] for error in found] == [place]
