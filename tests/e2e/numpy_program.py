#!/usr/bin/python3
"""A program for `flashbench --program` (src/program/process.h), in NumPy: one correct provider, and
others that are wrong, refuse problems, or end in ways that the tool must survive."""

import ctypes
import json
import os
import signal
import sys
import zlib

import numpy as np
import reference

DTYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": np.uint16, "int32": np.int32}
PROVIDERS = ["exact", "without_logsumexp", "wrong", "stale", "changes_inputs", "refuses", "raises",
             "no_memory", "works_on", "loses_device", "dies", "keeps", "takes_forever", "takes_nothing",
             "needs_less_than_nothing", "runs_nothing", "counts_nothing", "counts_words"]
ON_REQUEST_ONLY = PROVIDERS[2:]
WINDOW = ["window_left", "window_right"]
PAGES = ["page_size", "kv_layout", "page_order", "shared_prefix", "block_table"]
KNOWN = {"pass", "dtype", "mask", "batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim",
         "softmax_scale", *WINDOW, "head_dim_v", "lengths", "page_size"}  # of a problem


def serve(program):
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(program, request.pop("do"))(**request) or {}
        except Failure as failure:
            answer = {"error": {"kind": failure.kind, "message": str(failure)}}
        print(json.dumps(answer), flush=True)


class Failure(Exception):
    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def at(address, size):
    return np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(address))


def tensor(view):
    dtype = np.dtype(DTYPES[view["dtype"]])
    strides = [n * dtype.itemsize for n in view["strides"]]
    size = sum(max(n - 1, 0) * s for n, s in zip(view["shape"], strides)) + dtype.itemsize
    return np.lib.stride_tricks.as_strided(at(view["address"], size).view(dtype), view["shape"],
                                           strides)


def load(view):
    values = tensor(view)
    return (reference.from_bf16(values) if view["dtype"] == "bf16" else values).astype(np.float64)


def store(view, values):
    tensor(view)[...] = (reference.to_bf16(values) if view["dtype"] == "bf16"
                         else values.astype(DTYPES[view["dtype"]]))


def side(name):
    """Whether the rows of a tensor are queries or keys."""
    return "k" if name in ("k", "v", "dk", "dv") else "q"


def tell_that_it_runs():
    """Writes a byte to the pipe with this number, if a test has opened one."""
    pipe = os.environ.pop("NUMPY_PROGRAM_PIPE", None)
    if pipe is not None:
        os.write(int(pipe), b"r")


class Session:
    def __init__(self, provider, problem):
        self.provider, self.problem = provider, problem
        self.kept = None

    def prepare_inputs(self, inputs):
        self.inputs = inputs

    def run(self, outputs):
        tell_that_it_runs()
        if self.provider == "refuses":
            raise Failure("unsupported", "it does not like this problem")
        if self.provider == "raises":
            raise Failure("other", "something broke")
        if self.provider == "no_memory":
            raise Failure("out_of_memory", "there is none left")
        if self.provider == "loses_device":
            raise Failure("device_lost", "an illegal address was read")
        if self.provider == "dies":
            print("these are my last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        if "lengths" in self.problem or "page_size" in self.problem:
            self.run_requests(outputs)
        else:
            self.run_one_tensor_each(outputs)

    def run_one_tensor_each(self, outputs):
        if self.provider != "stale" or not self.kept:
            results = self.results({name: load(view) for name, view in self.inputs.items()})
        else:
            results = self.kept
        self.kept = results
        for name, view in outputs.items():
            store(view, results[name].reshape(view["shape"]))
        if self.provider == "changes_inputs":
            tensor(self.inputs["q"])[0, 0, 0, 0] = 0

    def run_requests(self, outputs):
        q_starts, k_starts = (self.starts(side) for side in "qk")
        for b in range(self.problem["batch"]):
            own = {"q": q_starts[b:b + 2], "k": k_starts[b:b + 2]}
            if not any(end > first for first, end in own.values()):
                continue
            inputs = {name: self.pages(view, b, *own["k"]) if name in "kv" and "page_size" in self.problem
                      else load(self.rows(view, b, *own[side(name)]))
                      for name, view in self.inputs.items() if name in ("q", "k", "v", "d_o")}
            results = self.results(inputs)
            for name, view in outputs.items():
                view = self.rows(view, b, *own[side(name)])
                store(view, results[name].reshape(view["shape"]))

    def starts(self, side):
        """The first row of each request, and the end of the last."""
        if "lengths" in self.problem:
            return tensor(self.inputs[f"cu_seqlens_{side}"])
        return np.arange(self.problem["batch"] + 1) * self.problem["q_len" if side == "q" else "kv_len"]

    def pages(self, view, b, first, end):
        """The keys or values of a request, out of their pages."""
        count = -(-int(end - first) // self.problem["page_size"])
        pages = load(view)[tensor(self.inputs["block_table"])[b, :count]]
        _, heads, _, columns = pages.shape
        return pages.swapaxes(0, 1).reshape(heads, -1, columns)[None, :, :end - first]

    def rows(self, view, b, first, end):
        ragged = self.problem.get("lengths") == "ragged"
        element = np.dtype(DTYPES[view["dtype"]]).itemsize
        offset = first * view["strides"][2] if ragged else b * view["strides"][0]
        return {**view, "address": view["address"] + int(offset) * element,
                "shape": [1, view["shape"][1], int(end - first), view["shape"][3]]}

    def results(self, x):
        p = self.problem
        arguments = (p["mask"], p["softmax_scale"] * (1.01 if self.provider == "wrong" else 1),
                     [p.get(side) for side in WINDOW])
        if p["pass"] == "forward":
            return reference.forward(x["q"], x["k"], x["v"], *arguments)[0]
        return reference.backward(x["q"], x["k"], x["v"], x["d_o"], *arguments)[0]


class Gemm:
    provider = "gemm"

    def __init__(self, size):
        self.a = np.zeros((size, size), np.float32)

    def run(self, outputs):
        self.a @ self.a.T


class Program:
    def open(self, kind, index, threads, cold_bytes, providers):
        for name in providers:
            if name not in PROVIDERS:
                raise Failure("bad_input", f"providers: expected one of {', '.join(PROVIDERS)}, got "
                                           f"\"{name}\"")
        self.blocks, self.sessions, self.ran_last = {}, [], None
        chosen = providers or [name for name in PROVIDERS if name not in ON_REQUEST_ONLY]
        return {"providers": [{"name": name, "description": "NumPy",
                               "logsumexp": name != "without_logsumexp",
                               **({"axes": [*WINDOW, "head_dim_v", "lengths", *PAGES]} if name == "exact" else {})}
                              for name in chosen],
                "facts": {"numpy": np.__version__}}

    def allocate(self, bytes):
        block = np.empty(bytes + 64, np.uint8)
        address = (block.ctypes.data + 63) // 64 * 64
        self.blocks[address] = block
        return {"address": address}

    def free(self, address):
        del self.blocks[address]

    def write(self, address, bytes, file):
        at(address, bytes)[:] = np.memmap(file["path"], np.uint8, "r", shape=(bytes,))

    def read(self, address, bytes, file):
        np.memmap(file["path"], np.uint8, "r+", shape=(bytes,))[:] = at(address, bytes)

    def poison(self, address, bytes):
        at(address, bytes)[:] = 0xFF

    def poisoned_elements(self, address, elements, element_bytes):
        values = at(address, elements * element_bytes).reshape(elements, element_bytes)
        if self.ran_last == "counts_nothing":
            return {}
        return {"count": "none" if self.ran_last == "counts_words" else int((values == 0xFF).all(axis=1).sum())}

    def flip_signs(self, address, elements, element_bytes):
        at(address, elements * element_bytes)[element_bytes - 1::element_bytes] ^= 0x80

    def hash(self, address, bytes, seed):
        return {"hash": zlib.crc32(at(address, bytes).tobytes(), seed & 0xFFFFFFFF)}

    def evict_caches(self):
        pass

    def prepare(self, provider, problem):
        if unknown := problem.keys() - KNOWN:
            raise Failure("unsupported", f"it does not know {', '.join(sorted(unknown))}")
        return self.keep(Session(provider, problem))

    def prepare_gemm(self, dtype, size):
        return self.keep(Gemm(size // 8))

    def keep(self, session):
        self.sessions.append(session)
        return {"session": len(self.sessions) - 1}

    def prepare_inputs(self, session, inputs):
        self.sessions[session].prepare_inputs(inputs)
        return {"plan_seconds": 2e-6} if "lengths" in self.sessions[session].problem else {}

    def run(self, session, outputs, timed):
        self.sessions[session].run(outputs)
        self.ran_last = self.sessions[session].provider
        if self.ran_last == "runs_nothing":
            return {}
        behind = 1 if self.sessions[session].provider == "works_on" else 0
        seconds = {"takes_forever": 1e300, "takes_nothing": 0}.get(self.sessions[session].provider, 0.001)
        bytes = -1 if self.sessions[session].provider == "needs_less_than_nothing" else 0
        return {"kernel": "numpy", **({"seconds": seconds} if timed
                                      else {"seconds_behind": behind, "workspace_bytes": bytes})}

    def close(self, session):
        if getattr(self.sessions[session], "provider", None) == "keeps":
            raise Failure("other", "it is not done with it")
        self.sessions[session] = None


if __name__ == "__main__":
    if sys.argv[1:] != ["serve"]:
        sys.exit("numpy_program.py: expected the argument serve")
    serve(Program())
