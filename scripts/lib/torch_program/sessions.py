"""One provider on one problem, or the GEMM that all are compared with, ready to be run again."""

import torch

from torch_program import providers
from torch_program.memory import DTYPES, poison

KNOWN = {"pass", "dtype", "mask", "batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim",
         "softmax_scale"}  # of a problem


class Forward:
    """As in training: the logsumexp is left for a backward pass, and checked where it can be had."""

    def __init__(self, provider, problem):
        self.provider, self.problem = provider, problem
        self.kernel = provider.name

    def prepare_inputs(self, inputs):
        self.q, self.k, self.v = (inputs[name].detach().requires_grad_() for name in "qkv")

    def launch(self):
        return self.provider.attend(self.q, self.k, self.v, self.problem)

    def outputs(self, o):
        found = {"o": o.detach()}
        if self.provider.node:
            node = providers.node_behind(o, self.provider.node)
            self.kernel = type(node).__name__.removesuffix("0").removesuffix("Backward")
            if self.provider.gives_logsumexp:
                found["logsumexp"] = providers.logsumexp_of(node, self.problem["q_len"])
        return found

    def given_bytes(self):
        return 0


class Backward(Forward):
    """Goes back through a forward pass of its own, from its own O and logsumexp."""

    def prepare_inputs(self, inputs):
        super().prepare_inputs(inputs)
        self.d_o = inputs["d_o"]
        self.o = self.provider.attend(self.q, self.k, self.v, self.problem)
        super().outputs(self.o)  # by the backend that was asked for

    def launch(self):
        return torch.autograd.grad(self.o, (self.q, self.k, self.v), self.d_o, retain_graph=True)

    def outputs(self, gradients):
        return dict(zip(("dq", "dk", "dv"), gradients))

    def given_bytes(self):
        """Of what flashbench counts among a backward pass's inputs: O and the logsumexp."""
        return self.o.nbytes + 4 * self.o[..., 0].numel()


class Session:
    """Runs a pass on flashbench's tensors. What torch allocates for outputs is copied to them after
    the clock has stopped."""

    def __init__(self, clock, attention):
        self.clock, self.attention = clock, attention
        self.kept_bytes = 0  # of the forward pass that a backward pass goes through
        self.left = []  # outputs of the last run

    def prepare_inputs(self, inputs):
        self.clock.watch_memory()
        providers.with_reasons(lambda: self.attention.prepare_inputs(inputs))
        growth = self.clock.memory_growth()
        if growth is not None:
            self.kept_bytes = max(0, growth[1] - self.attention.given_bytes())

    def run(self, outputs, timed):
        self.forget_outputs()
        if timed:
            result, seconds = self.clock.time(self.attention.launch)
            answer = {"seconds": seconds}
        else:
            self.clock.watch_memory()
            result, answer = providers.with_reasons(lambda: self.clock.run(self.attention.launch))
        found = self.attention.outputs(result)
        if not timed:
            answer["workspace_bytes"] = self.workspace(found)
        for name, tensor in found.items():
            outputs[name].copy_(tensor.view(outputs[name].shape))
        self.left = list(found.values())
        answer["kernel"] = self.attention.kernel
        return answer

    def workspace(self, outputs):
        """What the run took beside its outputs, and what the forward pass had kept for it."""
        growth = self.clock.memory_growth()
        if growth is None:
            return None
        return self.kept_bytes + max(0, growth[0] - sum(x.nbytes for x in outputs.values()))

    def forget_outputs(self):
        """Memory that is handed out again shows what the next run does not write."""
        for tensor in self.left:
            poison(tensor)
        self.left = []


class Gemm:
    """C = A B^T of normal operands: the ceiling in every case's rounds."""

    def __init__(self, clock, device, dtype, size):
        self.clock = clock
        generator = torch.Generator(device).manual_seed(1)
        self.a, self.b = (torch.randn(size, size, dtype=torch.float32, device=device,
                                      generator=generator).to(DTYPES[dtype]) for _ in range(2))
        self.c = torch.empty_like(self.a)

    def prepare_inputs(self, inputs):
        pass

    def run(self, outputs, timed):
        def work():
            torch.mm(self.a, self.b.t(), out=self.c)
        return {"seconds": self.clock.time(work)[1]} if timed else self.clock.run(work)[1]


def make_session(clock, provider, problem):
    if unknown := problem.keys() - KNOWN:
        raise providers.Unsupported(f"it does not know {', '.join(sorted(unknown))}")
    kind = Forward if problem["pass"] == "forward" else Backward
    return Session(clock, kind(provider, problem))
