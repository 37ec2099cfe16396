"""The packages that the authors of FlashAttention publish."""

import functools
import importlib.util

from torch_program.provider import WINDOWS, Provider, Unsupported, window

# FlashAttention-4 takes -1 on one side for a number of keys.
PACKAGES = {"fa2": ("flash_attn", -1), "fa3": ("flash_attn_interface", -1), "fa4": ("flash_attn.cute", None)}


def packages():
    """A provider for each package that is installed."""
    for name, (module, all_keys) in PACKAGES.items():
        if is_installed(module):
            yield Provider(name, f"{module}.flash_attn_func, flash_attn_varlen_func",
                           functools.partial(flash_package, module, all_keys), axes=[*WINDOWS, "lengths"])


def is_installed(module):
    """FlashAttention-4 alone makes a folder of the name of FlashAttention-2, which is no package."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # the enclosing package is missing
        return False
    return found is not None and found.origin is not None


def flash_package(module, all_keys, q, k, v, problem):
    """FlashAttention's own packages: [batch, length, heads, head_dim], or [tokens, heads, head_dim];
    causal at the bottom right. `all_keys` is what the package calls a window without an end."""
    functions = importlib.import_module(module)
    options = {"softmax_scale": problem["softmax_scale"], "causal": problem["mask"] != "none"}
    if any(name in problem for name in WINDOWS):
        options["window_size"] = tuple(all_keys if keys is None else keys for keys in window(problem))
    rows = [x.transpose(1, 2) for x in (q, k, v)]
    same_lengths = problem.get("same_lengths", problem["q_len"] == problem["kv_len"])
    if problem["mask"] == "causal_top_left" and not same_lengths:
        raise Unsupported("its causal mask ends in the bottom right corner")
    if "lengths" not in problem:
        return first(functions.flash_attn_func(*rows, **options)).transpose(1, 2)
    if problem["lengths"] != "ragged":
        raise Unsupported("its requests lie one behind the other, without padding")
    o = functions.flash_attn_varlen_func(
        *(x[0] for x in rows), cu_seqlens_q=problem["cu_seqlens_q"],
        cu_seqlens_k=problem["cu_seqlens_k"], max_seqlen_q=problem["q_len"],
        max_seqlen_k=problem["kv_len"], **options)
    return first(o)[None].transpose(1, 2)


def first(result):
    return result[0] if isinstance(result, tuple) else result
