"""The attention of PyTorch and of related packages: one line each in `all_providers`.

A provider's `attend` takes Q, K, V [batch, heads, length, head_dim] with any strides, and flashbench's
description of a problem. It returns O, which autograd can differentiate.
"""

import functools
import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

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
    nested = ["head_dim_v", "lengths"]
    return [
        sdpa("flash", SDPBackend.FLASH_ATTENTION, "FlashAttention", axes=nested),
        sdpa("efficient", SDPBackend.EFFICIENT_ATTENTION, "EfficientAttention", axes=nested),
        sdpa("cudnn", SDPBackend.CUDNN_ATTENTION, "CudnnAttention", axes=nested),
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


def sdpa(name, backend, node="", gives_logsumexp=True, axes=("head_dim_v",)):
    return Provider(f"torch:{name}", f"scaled_dot_product_attention, {backend.name}",
                    functools.partial(scaled_dot_product_attention, backend), node,
                    gives_logsumexp, axes=list(axes))


def scaled_dot_product_attention(backend, q, k, v, problem):
    try:
        with sdpa_kernel([backend]):
            if "lengths" in problem:
                return nested_attention(q, k, v, problem)
            return F.scaled_dot_product_attention(
                q, k, v, **mask_arguments(problem), scale=problem["softmax_scale"],
                enable_gqa=problem["q_heads"] != problem["kv_heads"])
    except RuntimeError as error:
        if "No available kernel" in str(error) or "No viable backend" in str(error):
            raise Unsupported(str(error)) from None
        raise


def requests(inputs):
    """What nested tensors keep beside the data: where the requests begin, and their shortest lengths."""
    q, k = (inputs[f"cu_seqlens_{side}"].long() for side in "qk")
    return {"q_starts": q, "k_starts": k, "shortest": (int(q.diff().min()), int(k.diff().min())),
            "same_lengths": torch.equal(q, k)}


def nested_attention(q, k, v, problem):
    """Requests one behind the other, [1, heads, tokens, head_dim], as nested tensors."""
    if problem["lengths"] != "ragged":
        raise Unsupported("PyTorch's nested tensors are ragged, without padding")
    if problem["q_heads"] != problem["kv_heads"]:
        raise Unsupported("PyTorch's nested tensors have as many heads in K and V as in Q")
    if problem["mask"] != "none" and not problem["same_lengths"]:
        raise Unsupported("PyTorch's causal masks of nested tensors are for as many queries as keys")

    def nested(x, starts, shortest, longest):
        return torch.nested.nested_tensor_from_jagged(
            x[0].transpose(0, 1), starts, min_seqlen=shortest, max_seqlen=longest).transpose(1, 2)

    shortest_q, shortest_k = problem["shortest"]
    o = F.scaled_dot_product_attention(
        nested(q, problem["q_starts"], shortest_q, problem["q_len"]),
        *(nested(x, problem["k_starts"], shortest_k, problem["kv_len"]) for x in (k, v)),
        is_causal=problem["mask"] != "none", scale=problem["softmax_scale"])
    return o.transpose(1, 2).values().transpose(0, 1)[None]


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


def logsumexp_of(node, problem):
    """[batch, heads, length], or of requests [heads, tokens]; some backends keep rows beyond the length."""
    saved = node._saved_log_sumexp if hasattr(node, "_saved_log_sumexp") else node._saved_logsumexp
    if "lengths" not in problem:
        return saved.reshape(*saved.shape[:2], -1)[..., :problem["q_len"]]
    if saved.dim() == 2:
        return saved[None]
    lengths = problem["q_starts"].diff().tolist()
    rows = saved.reshape(*saved.shape[:2], -1)
    return torch.cat([of_request[:, :length] for of_request, length in zip(rows, lengths)], dim=1)[None]


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
