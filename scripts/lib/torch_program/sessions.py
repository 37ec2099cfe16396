"""Sessions that run repeatedly: one provider on one problem, or the GEMM of the ceiling."""

import torch
from torch_program import providers
from torch_program.memory import DTYPES, poison
from torch_program.provider import WINDOWS, Unsupported

KNOWN = {"pass", "dtype", "mask", "batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_dim",
         "softmax_scale", "head_dim_v", "lengths", *WINDOWS}  # of a problem


class Forward:
    """As in training: the logsumexp is saved for a backward pass, and checked if it is accessible."""

    def __init__(self, clock, provider, problem):
        self.clock = clock
        self.provider, self.problem = provider, problem
        self.kernel = provider.name
        self.plan_seconds = None

    def prepare_inputs(self, inputs):
        self.q, self.k, self.v = (inputs[name].detach().requires_grad_() for name in "qkv")
        if "lengths" in self.problem:
            self.problem = {**self.problem, **providers.requests(inputs)}
        if self.provider.plan:
            self.problem = {**self.problem, "plan": self.planned()}

    def planned(self):
        """What the second of two plans took: the first one may have to compile its program."""
        for _ in range(2):
            plan, self.plan_seconds = self.clock.wall(
                lambda: self.provider.plan(self.problem, self.q.device))
        return plan

    def launch(self):
        return self.provider.attend(self.q, self.k, self.v, self.problem)

    def outputs(self, o):
        found = {"o": o.detach()}
        if self.provider.node:
            node = providers.node_behind(o, self.provider.node)
            self.kernel = type(node).__name__.removesuffix("0").removesuffix("Backward")
            if self.provider.gives_logsumexp:
                found["logsumexp"] = providers.logsumexp_of(node, self.problem)
        return found

    def given_bytes(self):
        return 0


class Backward(Forward):
    """Differentiates its own forward pass, from its own O and logsumexp."""

    def prepare_inputs(self, inputs):
        super().prepare_inputs(inputs)
        self.d_o = inputs["d_o"]
        self.o = self.provider.attend(self.q, self.k, self.v, self.problem)
        super().outputs(self.o)  # checks that the requested backend ran

    def launch(self):
        return torch.autograd.grad(self.o, (self.q, self.k, self.v), self.d_o, retain_graph=True)

    def outputs(self, gradients):
        return dict(zip(("dq", "dk", "dv"), gradients))

    def given_bytes(self):
        """The bytes that flashbench counts as inputs of a backward pass: O and the logsumexp."""
        return self.o.nbytes + 4 * self.o[..., 0].numel()


class Session:
    """Runs a pass on flashbench's tensors. Outputs that torch allocates are copied to them after the
    clock has stopped."""

    def __init__(self, clock, attention):
        self.clock, self.attention = clock, attention
        self.kept_bytes = 0  # by the forward pass, for the backward pass
        self.left = []  # outputs of the last run

    def prepare_inputs(self, inputs):
        self.clock.watch_memory()
        providers.with_reasons(lambda: self.attention.prepare_inputs(inputs))
        growth = self.clock.memory_growth()
        if growth is not None:
            self.kept_bytes = max(0, growth[1] - self.attention.given_bytes())
        planned = self.attention.plan_seconds
        return {} if planned is None else {"plan_seconds": planned}

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
        """The memory of the run beside its outputs, and the memory that the forward pass kept for it."""
        growth = self.clock.memory_growth()
        if growth is None:
            return None
        return self.kept_bytes + max(0, growth[0] - sum(x.nbytes for x in outputs.values()))

    def forget_outputs(self):
        """Poisons memory that will be reused, so that missing writes of the next run show."""
        for tensor in self.left:
            poison(tensor)
        self.left = []


class Gemm:
    """C = A B^T of normally distributed operands: the ceiling in every case's rounds."""

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
        raise Unsupported(f"it does not know {', '.join(sorted(unknown))}")
    kind = Forward if problem["pass"] == "forward" else Backward
    return Session(clock, kind(clock, provider, problem))
