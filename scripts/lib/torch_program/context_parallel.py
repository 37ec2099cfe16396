"""The attention of torch.distributed.tensor.experimental.context_parallel: ring attention of
several GPUs, each with its tokens, behind scaled_dot_product_attention."""

import functools

import torch
from torch.distributed.tensor.experimental import _attention, context_parallel
from torch.nn.attention import SDPBackend
from torch_program.provider import Unsupported
from torch_program.providers import sdpa

BACKENDS = {"flash": (SDPBackend.FLASH_ATTENTION, "FlashAttention"),
            "cudnn": (SDPBackend.CUDNN_ATTENTION, "CudnnAttention")}
ROTATE_METHODS = ["allgather", "alltoall"]
DTYPES = ["fp16", "bf16"]


def group_providers():
    """A provider for each kernel and each way in which K and V come from other GPUs."""
    return [sdpa(f"context_parallel_{name}_{method}", backend, node, axes=["gpus", "split"],
                 context=functools.partial(in_context, method))
            for name, (backend, node) in BACKENDS.items() for method in ROTATE_METHODS]


def in_context(rotate_method, mesh, problem, work):
    """What `work` returns, while scaled_dot_product_attention is that of all GPUs of the mesh."""
    _attention.set_rotate_method(rotate_method)
    # Whether the ranks' tokens are those of its load balancer, whose steps skip what the mask
    # hides. PyTorch has no public name for it.
    _attention._cp_options.enable_load_balance = is_balanced(problem)
    # It wants a buffer whose tokens it divides; ours are divided already.
    placeholder = torch.empty(2 * mesh.size(), device=mesh.device_type)
    result = error = None
    with context_parallel(mesh, buffers=[placeholder], buffer_seq_dims=[0],
                          no_restore_buffers={placeholder}):
        try:
            result = work()
        except Exception as caught:  # the context would never be left
            error = caught
    if error:
        raise error
    return result


def is_balanced(problem):
    return problem["mask"] != "none" and split_of(problem) == "zigzag"


def split_of(problem):
    return problem.get("split", "zigzag")


def tokens_of(rank, problem, device):
    """The numbers of a rank's tokens: two of 2P equal chunks, in the order in which it has them."""
    ranks = problem["gpus"]
    length = problem["q_len"] // (2 * ranks)
    first = rank if split_of(problem) == "zigzag" else 2 * rank
    second = 2 * ranks - 1 - rank if split_of(problem) == "zigzag" else 2 * rank + 1
    return torch.cat([torch.arange(chunk * length, (chunk + 1) * length, device=device)
                      for chunk in (first, second)])


def part_of(problem):
    """What each GPU has, as a problem of its own."""
    length = problem["q_len"] // problem["gpus"]
    return {**{name: value for name, value in problem.items() if name not in ("gpus", "split")},
            "q_len": length, "kv_len": length}


def refuse(problem, gpus):
    """Raises Unsupported if these GPUs cannot share the problem."""
    if "gpus" not in problem:
        raise Unsupported("it runs problems that several devices share (gpus)")
    if split_of(problem) == "keys":
        raise Unsupported("it splits tokens: expected split zigzag or contiguous, got keys")
    if problem["dtype"] not in DTYPES:
        raise Unsupported(f"its kernels take {' and '.join(DTYPES)}, got {problem['dtype']}")
    q_len, kv_len, ranks = (problem[name] for name in ("q_len", "kv_len", "gpus"))
    if q_len != kv_len:
        raise Unsupported("it splits queries and keys alike: expected q_len = kv_len, got "
                          f"{q_len} and {kv_len}")
    if q_len % (2 * ranks) != 0:
        raise Unsupported(f"it splits tokens into {2 * ranks} equal chunks: expected a multiple of "
                          f"that, got {q_len}")
    if len(set(gpus)) < len(gpus):
        raise Unsupported("NCCL has one rank on a GPU: expected different ones, got "
                          f"cuda:{','.join(map(str, gpus))}")
