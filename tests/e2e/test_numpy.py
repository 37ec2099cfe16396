"""The providers' outputs on external tensors, against an independent NumPy reference."""

from dataclasses import dataclass

import numpy as np
import pytest
import reference

DTYPES = ["fp32", "fp16", "bf16"]
MASKS = ["none", "causal_top_left", "causal_bottom_right"]
PROVIDERS = ["naive", "tiled"]
UNIT_ROUNDOFF = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
SMALLEST_STEP = {"fp32": 2.0**-149, "fp16": 2.0**-24, "bf16": 2.0**-133}


@dataclass
class Shape:
    batch: int
    q_heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    layout: str
    head_dim_v: int | None = None  # as head_dim

    def __str__(self):
        return (f"b{self.batch}h{self.q_heads}:{self.kv_heads}q{self.q_len}k{self.kv_len}"
                f"d{self.head_dim}{f'v{self.head_dim_v}' if self.head_dim_v else ''}{self.layout}")


SHAPES = [
    Shape(2, 4, 2, 33, 65, 40, "bshd"),  # GQA, odd lengths
    Shape(1, 6, 1, 70, 17, 64, "bhsd"),  # MQA, more queries than keys: rows that see none
    Shape(2, 2, 2, 1, 257, 8, "bshd"),  # decoding
    Shape(1, 2, 2, 128, 128, 128, "bhsd"),  # whole tiles
    Shape(1, 1, 1, 1, 1, 256, "bshd"),  # the smallest lengths and the largest head_dim
    Shape(1, 4, 2, 45, 77, 192, "bshd", 128),  # V and O narrower, as in DeepSeek's prefill
    Shape(2, 2, 1, 17, 70, 24, "bhsd", 56),  # and wider
]


def save(path, x, dtype, layout):
    """Saves [batch, heads, length, head_dim] in a dtype and layout; returns it as rounded."""
    if dtype == "bf16":
        stored = reference.to_bf16(x)
        rounded = reference.from_bf16(stored)
    else:
        stored = x.astype(np.float32 if dtype == "fp32" else np.float16)
        rounded = stored
    np.save(path, np.ascontiguousarray(in_layout(stored, layout)))
    return rounded.astype(np.float64)


def load(path, dtype, layout):
    array = np.load(path)
    if dtype == "bf16":
        assert array.dtype == np.uint16
        array = reference.from_bf16(array)
    else:
        assert array.dtype == (np.float32 if dtype == "fp32" else np.float16)
    return in_layout(array, layout).astype(np.float64)


def in_layout(x, layout):
    """Converts from bhsd to a layout, or back: both swap the same axes."""
    return x.swapaxes(1, 2) if layout == "bshd" else x


def save_inputs(folder, shape, dtype, names):
    random = np.random.default_rng(20)
    head_dim, head_dim_v = shape.head_dim, shape.head_dim_v or shape.head_dim
    sizes = {"q": (shape.q_heads, shape.q_len, head_dim),
             "k": (shape.kv_heads, shape.kv_len, head_dim),
             "v": (shape.kv_heads, shape.kv_len, head_dim_v),
             "do": (shape.q_heads, shape.q_len, head_dim_v)}
    return {
        name: save(folder / f"{name}.npy",
                   random.standard_normal((shape.batch, *sizes[name])), dtype, shape.layout)
        for name in names
    }


def run_on_files(flashbench, shape, dtype, mask, names, *more):
    files = [argument for name in names for argument in (f"--{name}", f"{name}.npy")]
    kind = "backward" if "do" in names else "forward"
    flashbench("run", *files, "--pass", kind, "--dtype", dtype, "--mask", mask, "--layout",
               shape.layout, "--device", "cpu", "--dump", "out", "--no-time", "--quiet", *more)


def assert_close(name, found, expected, magnitude, dtype):
    """Allows a few roundings to the dtype, and the rounding of fp32 sums relative to their terms."""
    assert found.shape == expected.shape
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(found[infinite], expected[infinite])
    if name == "logsumexp":
        bound = 64 * UNIT_ROUNDOFF["fp32"] * magnitude
    else:
        relative = 4 * UNIT_ROUNDOFF[dtype] + 64 * UNIT_ROUNDOFF["fp32"]
        bound = relative * magnitude + SMALLEST_STEP[dtype]
    with np.errstate(invalid="ignore"):  # inf - inf, compared above
        error = abs(found - expected)
    wrong = ~(error <= bound) & ~infinite
    assert not wrong.any(), (
        f"{name}: {wrong.sum()} of {wrong.size} elements; the first at {np.argwhere(wrong)[0]}: "
        f"expected {expected[wrong][0]}, found {found[wrong][0]}, bound {bound[wrong][0]}")


def assert_outputs(folder, results, shape, dtype):
    expected, magnitudes = results
    for provider in PROVIDERS:
        for name in expected:
            path = folder / provider / f"{name}.npy"
            if name == "logsumexp":
                found = np.load(path)
                assert found.dtype == np.float32
            else:
                found = load(path, dtype, shape.layout)
            assert_close(name, found.astype(np.float64), expected[name], magnitudes[name], dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_forward(flashbench, tmp_path, dtype, mask, shape):
    x = save_inputs(tmp_path, shape, dtype, ["q", "k", "v"])
    run_on_files(flashbench, shape, dtype, mask, ["q", "k", "v"])
    scale = shape.head_dim**-0.5
    assert_outputs(tmp_path / "out", reference.forward(x["q"], x["k"], x["v"], mask, scale),
                   shape, dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_backward(flashbench, tmp_path, dtype, mask, shape):
    x = save_inputs(tmp_path, shape, dtype, ["q", "k", "v", "do"])
    run_on_files(flashbench, shape, dtype, mask, ["q", "k", "v", "do"])
    scale = shape.head_dim**-0.5
    assert_outputs(tmp_path / "out",
                   reference.backward(x["q"], x["k"], x["v"], x["do"], mask, scale), shape, dtype)


@pytest.mark.parametrize("window", [(5, None), (None, 0), (0, 0), (30, 8), (500, 500)], ids=str)
@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("names", [["q", "k", "v"], ["q", "k", "v", "do"]], ids=len)
def test_windows(flashbench, tmp_path, names, mask, shape, window):
    x = save_inputs(tmp_path, shape, "fp32", names)
    options = [word for option, keys in zip(["--window-left", "--window-right"], window)
               if keys is not None for word in (option, keys)]
    run_on_files(flashbench, shape, "fp32", mask, names, *options)
    compute = reference.backward if "do" in names else reference.forward
    assert_outputs(tmp_path / "out", compute(*x.values(), mask, shape.head_dim**-0.5, window),
                   shape, "fp32")


def test_rows_that_no_window_reaches_may_hold_anything(flashbench, tmp_path):
    """Keys and values before the first window, as a cache has them whose old rows were given up."""
    shape, window = Shape(1, 4, 2, 10, 200, 32, "bshd"), (20, 0)
    names = ["q", "k", "v", "do"]
    x = save_inputs(tmp_path, shape, "fp32", names)
    unseen = ~reference.visible(10, 200, "none", window).any(axis=0)
    assert unseen.sum() == 200 - 10 - 20 and unseen[0]
    for name in ["k", "v"]:
        spoilt = x[name].copy()
        spoilt[:, :, unseen] = np.nan
        save(tmp_path / f"{name}.npy", spoilt, "fp32", shape.layout)
    run_on_files(flashbench, shape, "fp32", "none", names, "--window-left", 20, "--window-right", 0)
    assert_outputs(tmp_path / "out",
                   reference.backward(*x.values(), "none", 32**-0.5, window), shape, "fp32")


@pytest.mark.parametrize("names", [["q", "k", "v"], ["q", "k", "v", "do"]], ids=len)
def test_scale_is_used(flashbench, tmp_path, names):
    shape, dtype, mask, scale = SHAPES[0], "fp32", "causal_bottom_right", 0.375
    x = save_inputs(tmp_path, shape, dtype, names)
    run_on_files(flashbench, shape, dtype, mask, names, "--scale", scale)
    compute = reference.backward if "do" in names else reference.forward
    assert_outputs(tmp_path / "out", compute(*x.values(), mask, scale), shape, dtype)


def test_rows_without_keys_are_zero(flashbench, tmp_path):
    shape, mask = SHAPES[1], "causal_bottom_right"
    save_inputs(tmp_path, shape, "fp32", ["q", "k", "v"])
    run_on_files(flashbench, shape, "fp32", mask, ["q", "k", "v"])
    blind = ~reference.visible(shape.q_len, shape.kv_len, mask).any(axis=1)
    assert blind.sum() == shape.q_len - shape.kv_len
    for provider in PROVIDERS:
        o = load(tmp_path / "out" / provider / "o.npy", "fp32", shape.layout)
        logsumexp = np.load(tmp_path / "out" / provider / "logsumexp.npy")
        assert (o[:, :, blind] == 0).all()
        assert (logsumexp[:, :, blind] == -np.inf).all()


@pytest.mark.parametrize("head_dim_v", [32, 48])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_dumped_inputs_give_the_same_outputs(flashbench, tmp_path, layout, dtype, head_dim_v):
    """What is dumped of generated inputs is what was computed on."""
    shape = Shape(2, 4, 2, 19, 45, 32, layout)
    flashbench("run", "--pass", "backward", "--dtype", dtype, "--layout", layout, "--batch", 2,
               "--q-heads", 4, "--kv-heads", 2, "--q-len", 19, "--kv-len", 45, "--head-dim", 32,
               "--head-dim-v", head_dim_v,
               "--seed", 7, "--device", "cpu", "--threads", 1, "--dump", "first", "--no-time", "--quiet")
    x = {name: load(tmp_path / "first" / f"{name}.npy", dtype, layout)
         for name in ["q", "k", "v", "do"]}
    assert_outputs(tmp_path / "first", reference.backward(*x.values(), "none", 32**-0.5), shape,
                   dtype)
    for name in x:
        (tmp_path / f"{name}.npy").write_bytes((tmp_path / "first" / f"{name}.npy").read_bytes())
    run_on_files(flashbench, shape, dtype, "none", list(x), "--threads", 1)
    for path in sorted((tmp_path / "first").rglob("*.npy")):
        again = tmp_path / "out" / path.relative_to(tmp_path / "first")
        assert again.read_bytes() == path.read_bytes(), path.name
