"""The attention of PyTorch and of related packages: one line each in `all_providers`.

A provider's `attend` takes Q, K, V [batch, heads, length, head_dim] with any strides, and flashbench's
description of a problem. It returns O, which autograd can differentiate.
"""

import functools
import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch_program.packages import packages
from torch_program.provider import WINDOWS, Provider, Unsupported, window

LOGSUMEXP_NAMES = ["_saved_logsumexp", "_saved_log_sumexp", "_saved_softmax_logsumexp"]  # of nodes


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
                 on_request_only=True, axes=[*WINDOWS, "head_dim_v", "lengths"], plan=flex_mask),
        *packages(),
    ]


# ---- torch.nn.functional.scaled_dot_product_attention


def sdpa(name, backend, node="", gives_logsumexp=True, axes=("head_dim_v",), **more):
    return Provider(f"torch:{name}", f"scaled_dot_product_attention, {backend.name}",
                    functools.partial(scaled_dot_product_attention, backend), node,
                    gives_logsumexp, axes=list(axes), **more)


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
    """Where the requests begin, and what nested tensors keep beside that."""
    q, k = (inputs[f"cu_seqlens_{side}"].long() for side in "qk")
    return {"cu_seqlens_q": inputs["cu_seqlens_q"], "cu_seqlens_k": inputs["cu_seqlens_k"],
            "q_starts": q, "k_starts": k, "shortest": (int(q.diff().min()), int(k.diff().min())),
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


# ---- others


@functools.cache
def compiled_flex():
    from torch.nn.attention.flex_attention import flex_attention
    return torch.compile(flex_attention, dynamic=False)


def flex_mask(problem, device):
    """Which blocks of queries and keys the mask hides; None: none of them."""
    from torch.nn.attention.flex_attention import create_block_mask
    if "lengths" in problem:
        return create_block_mask(request_mask(problem), None, None, int(problem["q_starts"][-1]),
                                 int(problem["k_starts"][-1]), device=device, _compile=True)
    if sees_all(problem):
        return None
    diagonal = 0 if problem["mask"] == "causal_top_left" else problem["kv_len"] - problem["q_len"]
    seen = seen_around(*window(problem))
    return create_block_mask(lambda b, h, query, key: seen(query + diagonal, key), None, None,
                             problem["q_len"], problem["kv_len"], device=device)


def seen_around(left, right):
    """Whether the query whose own key is `own` sees `key`."""
    def seen(own, key):
        if left is None and right is None:
            return key >= 0
        if left is None:
            return key <= own + right
        if right is None:
            return key >= own - left
        return (key >= own - left) & (key <= own + right)
    return seen


def request_mask(problem):
    """The mask of requests one behind the other: each query sees keys of its own request."""
    if problem["lengths"] != "ragged":
        raise Unsupported("its requests lie one behind the other, without padding")
    q_starts, k_starts = problem["q_starts"], problem["k_starts"]
    diagonals = k_starts[:-1] - q_starts[:-1]
    if problem["mask"] != "causal_top_left":
        diagonals = diagonals + k_starts.diff() - q_starts.diff()
    numbers = torch.arange(len(diagonals), device=diagonals.device)
    request_of_query, request_of_key = (torch.repeat_interleave(numbers, starts.diff())
                                        for starts in (q_starts, k_starts))
    seen = seen_around(*window(problem))

    def sees(b, h, query, key):
        request = request_of_query[query]
        return (request == request_of_key[key]) & seen(query + diagonals[request], key)
    return sees


def flex(q, k, v, problem):
    return compiled_flex()(q, k, v, block_mask=problem["plan"], scale=problem["softmax_scale"],
                           enable_gqa=problem["q_heads"] != problem["kv_heads"])


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
    """[batch, heads, length]; of requests [heads, tokens], from cuDNN [tokens, heads, 1]. Some backends
    keep rows beyond the length."""
    saved = next(getattr(node, name) for name in LOGSUMEXP_NAMES if hasattr(node, name))
    if hasattr(saved, "to_local"):  # this GPU's part of a DTensor
        saved = saved.to_local()
    if "lengths" not in problem:
        return saved.reshape(*saved.shape[:2], -1)[..., :problem["q_len"]]
    if saved.dim() == 2:
        return saved[None]
    tokens = int(problem["q_starts"][-1])
    if saved.shape[0] == tokens:
        return saved.reshape(tokens, -1).t()[None]
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
