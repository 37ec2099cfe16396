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


# ---- requests of different lengths

REQUESTS = [(5, 9), (0, 4), (70, 33), (3, 0), (1, 130)]


def request_tensors(shape, names):
    """For each request, its tensors as [1, heads, length, head_dim] in fp64."""
    random = np.random.default_rng(21)
    head_dim, head_dim_v = shape.head_dim, shape.head_dim_v or shape.head_dim
    sizes = {"q": (shape.q_heads, 0, head_dim), "k": (shape.kv_heads, 1, head_dim),
             "v": (shape.kv_heads, 1, head_dim_v), "do": (shape.q_heads, 0, head_dim_v)}
    return [{name: random.standard_normal((1, heads, request[side], columns))
             for name, (heads, side, columns) in sizes.items() if name in names}
            for request in REQUESTS]


def save_ragged(path, parts, dtype):
    """Saves [1, heads, length, head_dim] of each request as [tokens, heads, head_dim]; returns
    them as rounded."""
    tokens = np.concatenate([part[0].swapaxes(0, 1) for part in parts])
    rounded = save(path, tokens[None], dtype, "bhsd")[0]
    np.save(path, np.load(path)[0])
    ends = np.cumsum([part.shape[2] for part in parts])[:-1]
    return [part.swapaxes(0, 1)[None] for part in np.split(rounded, ends)]


def save_padded(path, parts, dtype, layout):
    """The same in a dense layout, padded to the longest with NaN."""
    longest = max(part.shape[2] for part in parts)
    padded = np.full((len(parts), parts[0].shape[1], longest, parts[0].shape[3]), np.nan)
    for request, part in zip(padded, parts):
        request[:, :part.shape[2]] = part[0]
    rounded = save(path, padded, dtype, layout)
    return [rounded[b:b + 1, :, :part.shape[2]] for b, part in enumerate(parts)]


def save_cu_seqlens(folder):
    for side, name in enumerate("qk"):
        starts = np.cumsum([0] + [request[side] for request in REQUESTS])
        np.save(folder / f"cu_seqlens_{name}.npy", starts.astype(np.int32))
    return ["--cu-seqlens-q", "cu_seqlens_q.npy", "--cu-seqlens-k", "cu_seqlens_k.npy"]


def of_request(array, name, b, layout):
    """The part of an output that is request b's, as [1, heads, length, columns]; the logsumexp
    without columns."""
    side = 0 if name in ["o", "logsumexp", "dq"] else 1
    length = REQUESTS[b][side]
    if layout != "ragged":
        dense = array if name == "logsumexp" else in_layout(array, layout)
        return dense[b:b + 1, :, :length]
    first = sum(request[side] for request in REQUESTS[:b])
    if name == "logsumexp":
        return array[None, :, first:first + length]
    return array[first:first + length].swapaxes(0, 1)[None]


def assert_requests(folder, tensors, mask, shape, dtype, window=(None, None)):
    compute = reference.backward if "do" in tensors[0] else reference.forward
    for b, x in enumerate(tensors):
        if 0 in REQUESTS[b]:
            continue  # nothing to sum; tests of their own
        expected, magnitudes = compute(*x.values(), mask, shape.head_dim**-0.5, window)
        for provider in PROVIDERS:
            for name in expected:
                array = np.load(folder / provider / f"{name}.npy")
                if dtype == "bf16" and name != "logsumexp":
                    array = reference.from_bf16(array)
                found = of_request(array, name, b, shape.layout).astype(np.float64)
                assert_close(name, found, expected[name], magnitudes[name], dtype)


@pytest.mark.parametrize("layout", ["ragged", "bshd", "bhsd"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("names", [["q", "k", "v"], ["q", "k", "v", "do"]], ids=len)
def test_requests_of_different_lengths(flashbench, tmp_path, names, dtype, mask, layout):
    shape = Shape(len(REQUESTS), 4, 2, 0, 0, 40, layout, 24)
    drawn = request_tensors(shape, names)
    tensors = [{} for _ in REQUESTS]
    for name in names:
        parts = [x[name] for x in drawn]
        path = tmp_path / f"{name}.npy"
        rounded = (save_ragged(path, parts, dtype) if layout == "ragged" else
                   save_padded(path, parts, dtype, layout))
        for x, part in zip(tensors, rounded):
            x[name] = part
    lengths = (save_cu_seqlens(tmp_path) if layout == "ragged" else
               ["--lengths", "_".join(f"q{q}s{k}" for q, k in REQUESTS)])
    run_on_files(flashbench, shape, dtype, mask, names, *lengths)
    assert_requests(tmp_path / "out", tensors, mask, shape, dtype)


@pytest.mark.parametrize("names", [["q", "k", "v"], ["q", "k", "v", "do"]], ids=len)
def test_windows_of_requests_of_different_lengths(flashbench, tmp_path, names):
    shape = Shape(len(REQUESTS), 2, 1, 0, 0, 16, "ragged")
    drawn = request_tensors(shape, names)
    rounded = {name: save_ragged(tmp_path / f"{name}.npy", [x[name] for x in drawn], "fp32")
               for name in names}
    tensors = [{name: rounded[name][b] for name in names} for b in range(len(REQUESTS))]
    run_on_files(flashbench, shape, "fp32", "causal_bottom_right", names, "--window-left", 20,
                 *save_cu_seqlens(tmp_path))
    assert_requests(tmp_path / "out", tensors, "causal_bottom_right", shape, "fp32", (20, None))


def test_requests_without_keys_get_zeros(flashbench, tmp_path):
    shape = Shape(len(REQUESTS), 2, 1, 0, 0, 16, "ragged")
    drawn = request_tensors(shape, ["q", "k", "v"])
    for name in ["q", "k", "v"]:
        save_ragged(tmp_path / f"{name}.npy", [x[name] for x in drawn], "fp32")
    run_on_files(flashbench, shape, "fp32", "none", ["q", "k", "v"], *save_cu_seqlens(tmp_path))
    for provider in PROVIDERS:
        folder = tmp_path / "out" / provider
        o, logsumexp = np.load(folder / "o.npy"), np.load(folder / "logsumexp.npy")
        assert o.shape == (79, 2, 16) and logsumexp.shape == (2, 79)
        assert (of_request(o, "o", 3, "ragged") == 0).all()
        assert (of_request(logsumexp, "logsumexp", 3, "ragged") == -np.inf).all()


def test_dumped_ragged_inputs_give_the_same_outputs(flashbench, tmp_path):
    flashbench("run", "--pass", "backward", "--layout", "ragged", "--lengths", "2q9_q3s40_q0s5",
               "--head-dim", 16, "--q-heads", 2, "--device", "cpu", "--threads", 1, "--dump",
               "first", "--no-time", "--quiet")
    np.testing.assert_array_equal(np.load(tmp_path / "first" / "cu_seqlens_q.npy"), [0, 9, 18, 21, 21])
    np.testing.assert_array_equal(np.load(tmp_path / "first" / "cu_seqlens_k.npy"),
                                  [0, 9, 18, 58, 63])
    files = [word for name in ["q", "k", "v", "do"] for word in (f"--{name}", f"first/{name}.npy")]
    flashbench("run", "--pass", "backward", *files, "--cu-seqlens-q", "first/cu_seqlens_q.npy",
               "--cu-seqlens-k", "first/cu_seqlens_k.npy", "--device", "cpu", "--threads", 1,
               "--dump", "out", "--no-time", "--quiet")
    for path in sorted((tmp_path / "first").rglob("*.npy")):
        again = tmp_path / "out" / path.relative_to(tmp_path / "first")
        assert again.read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("starts_q, starts_k, said", [
    ([1, 5, 9], [0, 4, 8], "q.npy: element 0: expected 0, found 1"),
    ([0, 5, 4], [0, 4, 8], "q.npy: element 2: expected at least the one before, 5, found 4"),
    ([0, 5, 9], [0, 8], "k.npy: expected 2 requests, as cu_q.npy has, found 1"),
    ([0, 5, 8], [0, 4, 8], "q.npy: expected 8 tokens, the sum of the lengths, found 9"),
    ([0, 5, 9], [0, 4, 9], "k.npy: expected 9 tokens, the sum of the lengths, found 8"),
    ([0], [0], "expected int32 of one dimension"),
    ([0.0, 9.0], [0, 8], "found float32 of shape (2)"),
    ([0, 0], [0, 8], "cu_q.npy: expected at least one query, found none in any request"),
    ([0] * 32769 + [9], [0] * 32769 + [8], "expected from 1 to 32768 requests, found 32769"),
])
def test_inconsistent_cu_seqlens_are_refused(flashbench, tmp_path, starts_q, starts_k, said):
    for name, tokens in [("q", 9), ("k", 8), ("v", 8)]:
        np.save(tmp_path / f"{name}.npy", np.zeros((tokens, 2, 16), np.float32))
    for name, starts in [("q", starts_q), ("k", starts_k)]:
        whole = all(isinstance(start, int) for start in starts)
        np.save(tmp_path / f"cu_{name}.npy", np.array(starts, np.int32 if whole else np.float32))
    process = flashbench("run", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--cu-seqlens-q",
                         "cu_q.npy", "--cu-seqlens-k", "cu_k.npy", "--no-time", expect=2)
    assert said in process.stderr
