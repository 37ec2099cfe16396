"""The attention of PyTorch and of related packages: one line each in `all_providers`.

A provider's `attend` takes Q, K, V [batch, heads, length, head_dim] with any strides, and flashbench's
description of a problem. It returns O, which autograd can differentiate.
"""

import functools
import importlib.util
import warnings
from dataclasses import dataclass, field
from typing import Callable

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right


WINDOWS = ["window_left", "window_right"]


class Unsupported(Exception):
    """The provider does not support the problem."""


@dataclass
class Provider:
    name: str
    description: str
    attend: Callable
    node: str = ""  # part of the name of the autograd node that must result
    gives_logsumexp: bool = False  # in that node
    on_request_only: bool = False
    axes: list = field(default_factory=list)  # optional axes of problems that it knows


def all_providers(device):
    """The providers that this device and the installed packages have."""
    if device.type == "cpu":
        # In 16 bits the logsumexp of flash has an error beyond what rounding explains. It is no
        # output of the function, and not checked.
        return [sdpa("flash", SDPBackend.FLASH_ATTENTION, "FlashAttention", gives_logsumexp=False),
                sdpa("math", SDPBackend.MATH, gives_logsumexp=False)]
    return [
        sdpa("flash", SDPBackend.FLASH_ATTENTION, "FlashAttention"),
        sdpa("efficient", SDPBackend.EFFICIENT_ATTENTION, "EfficientAttention"),
        sdpa("cudnn", SDPBackend.CUDNN_ATTENTION, "CudnnAttention"),
        sdpa("math", SDPBackend.MATH, gives_logsumexp=False),
        Provider("torch:flex", "torch.nn.attention.flex_attention, compiled for each shape", flex,
                 on_request_only=True, axes=[*WINDOWS, "head_dim_v"]),
        *packages(),
    ]


def packages():
    for name, module, function in [
            ("fa2", "flash_attn", "flash_attn_func"),
            ("fa3", "flash_attn_interface", "flash_attn_func"),
            ("fa4", "flash_attn.cute", "flash_attn_func")]:
        if is_installed(module):
            yield Provider(name, f"{module}.{function}",
                           functools.partial(flash_package, module, function), axes=WINDOWS)


def is_installed(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the enclosing package is missing
        return False


# ---- torch.nn.functional.scaled_dot_product_attention


def sdpa(name, backend, node="", gives_logsumexp=True):
    return Provider(f"torch:{name}", f"scaled_dot_product_attention, {backend.name}",
                    functools.partial(scaled_dot_product_attention, backend), node,
                    gives_logsumexp, axes=["head_dim_v"])


def scaled_dot_product_attention(backend, q, k, v, problem):
    try:
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(
                q, k, v, **mask_arguments(problem), scale=problem["softmax_scale"],
                enable_gqa=problem["q_heads"] != problem["kv_heads"])
    except RuntimeError as error:
        if "No available kernel" in str(error) or "No viable backend" in str(error):
            raise Unsupported(str(error)) from None
        raise


def mask_arguments(problem):
    """PyTorch's form of a mask; its is_causal is causal_top_left."""
    mask, q_len, kv_len = problem["mask"], problem["q_len"], problem["kv_len"]
    if sees_all(problem):
        return {}
    if mask == "causal_top_left" or q_len == kv_len:
        return {"is_causal": True}
    return {"attn_mask": causal_lower_right(q_len, kv_len)}


def sees_all(problem):
    """A single query at the bottom right sees every key."""
    if any(name in problem for name in WINDOWS):
        return False
    return problem["mask"] == "none" or (problem["mask"] == "causal_bottom_right"
                                         and problem["q_len"] == 1)


def window(problem):
    """Keys before and after a query's own that it sees; None: all. A causal mask hides those after."""
    left, right = (problem.get(name) for name in WINDOWS)
    return left, right if problem["mask"] == "none" else 0


# ---- others


@functools.cache
def compiled_flex():
    from torch.nn.attention.flex_attention import flex_attention
    return torch.compile(flex_attention, dynamic=False)


@functools.cache
def flex_mask(diagonal, left, right, q_len, kv_len, device):
    from torch.nn.attention.flex_attention import create_block_mask

    def sees(b, h, query, key):
        own = query + diagonal
        if left is None:
            return key <= own + right
        if right is None:
            return key >= own - left
        return (key >= own - left) & (key <= own + right)

    return create_block_mask(sees, None, None, q_len, kv_len, device=device)


def flex(q, k, v, problem):
    q_len, kv_len = problem["q_len"], problem["kv_len"]
    diagonal = 0 if problem["mask"] == "causal_top_left" else kv_len - q_len
    mask = None if sees_all(problem) else flex_mask(diagonal, *window(problem), q_len, kv_len, q.device)
    return compiled_flex()(q, k, v, block_mask=mask, scale=problem["softmax_scale"],
                           enable_gqa=problem["q_heads"] != problem["kv_heads"])


def flash_package(module, function, q, k, v, problem):
    """FlashAttention's own packages: [batch, length, heads, head_dim], causal at the bottom right."""
    if problem["mask"] == "causal_top_left" and problem["q_len"] != problem["kv_len"]:
        raise Unsupported("its causal mask ends in the bottom right corner")
    attend = getattr(importlib.import_module(module), function)
    limits = {}
    if any(name in problem for name in WINDOWS):
        limits["window_size"] = tuple(-1 if keys is None else keys for keys in window(problem))
    o = attend(*(x.transpose(1, 2) for x in (q, k, v)), softmax_scale=problem["softmax_scale"],
               causal=problem["mask"] != "none", **limits)
    return (o[0] if isinstance(o, tuple) else o).transpose(1, 2)


# ---- what autograd saves of a forward pass


def node_behind(o, name):
    """The node that saves O and the logsumexp for the backward pass. Transposes and slices may come
    in between."""
    node = o.grad_fn
    while node is not None:
        if name in type(node).__name__:
            return node
        node = node.next_functions[0][0] if node.next_functions else None
    raise RuntimeError(f"expected it to run {name}, found {type(o.grad_fn).__name__}")


def logsumexp_of(node, q_len):
    """[batch, heads, length]; some backends keep rows beyond the length."""
    saved = node._saved_log_sumexp if hasattr(node, "_saved_log_sumexp") else node._saved_logsumexp
    return saved.reshape(*saved.shape[:2], -1)[..., :q_len]


def with_reasons(work):
    """Runs it; an error then contains the reasons that PyTorch only warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return work()
        except Unsupported as error:
            raise Unsupported(" ".join(reasons(caught)) or str(error)) from None


def reasons(caught):
    """The warnings without those about backends that were not requested."""
    for warning in caught:
        text = str(warning.message).split(" (Triggered internally")[0]
        if not text.endswith(("kernel not used because:", "has been runtime disabled.")):
            yield text
