"""Attention in NumPy and fp64, with all matrices of the derivation in full; and bf16 as uint16.

Tensors are [batch, heads, length, head_dim]. Independent of the C++ code on purpose. Each result
comes with its magnitudes: the same sums over the terms' absolute values, to which rounding errors
are proportional.
"""

import numpy as np


def visible(q_len, kv_len, mask, window=(None, None)):
    """[q_len, kv_len] of bool: which keys a query sees. A window is (left, right), None: all."""
    query, key = np.arange(q_len)[:, None], np.arange(kv_len)[None, :]
    ahead = key - query if mask == "causal_top_left" else (key - kv_len) - (query - q_len)
    left, right = window
    seen = np.ones((q_len, kv_len), bool) if mask == "none" else ahead <= 0
    if left is not None:
        seen &= ahead >= -left
    if right is not None:
        seen &= ahead <= right
    return seen


def shared(x, group):
    """K or V, repeated for each query head."""
    return np.repeat(x, group, axis=1)


def gathered(x, group):
    """The gradient of `shared`: the sum over the query heads of a K/V head."""
    batch, heads, length, head_dim = x.shape
    return x.reshape(batch, heads // group, group, length, head_dim).sum(axis=2)


def softmax(q, k, mask, scale, window):
    """P and the natural log of its rows' sums; a row that sees no key is 0 and -inf."""
    scores = scale * (q @ k.swapaxes(-1, -2))
    scores = np.where(visible(q.shape[2], k.shape[2], mask, window), scores, -np.inf)
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(highest), highest, 0))
    sums = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        logsumexp = np.log(sums) + highest
    return weights / np.where(sums > 0, sums, 1), logsumexp[..., 0]


def forward(q, k, v, mask, scale, window=(None, None)):
    """{o, logsumexp} and their magnitudes."""
    group = q.shape[1] // k.shape[1]
    k, v = shared(k, group), shared(v, group)
    p, logsumexp = softmax(q, k, mask, scale, window)
    scores = scale * (abs(q) @ abs(k).swapaxes(-1, -2))
    return (
        {"o": p @ v, "logsumexp": logsumexp},
        {"o": p @ abs(v), "logsumexp": 1 + scores.max(axis=-1, initial=0)},
    )


def backward(q, k, v, do, mask, scale, window=(None, None)):
    """{dq, dk, dv} and their magnitudes."""
    group = q.shape[1] // k.shape[1]
    k, v = shared(k, group), shared(v, group)
    p, _ = softmax(q, k, mask, scale, window)

    def gradients(q, k, v, do, sign):
        dp = do @ v.swapaxes(-1, -2)
        mean = (p * dp).sum(axis=-1, keepdims=True)
        ds = scale * p * (dp - sign * mean)
        return {
            "dq": ds @ k,
            "dk": gathered(ds.swapaxes(-1, -2) @ q, group),
            "dv": gathered(p.swapaxes(-1, -2) @ do, group),
        }

    return (
        gradients(q, k, v, do, 1),
        gradients(abs(q), abs(k), abs(v), abs(do), -1),
    )


def to_bf16(x):
    """The bf16 bits of fp32 values, rounded to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)
