"""Sessions of a problem that several GPUs share, one process each: the part of one of them."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch_program import sessions
from torch_program.clock import CudaClock
from torch_program.context_parallel import group_providers, part_of, tokens_of
from torch_program.memory import DTYPES

BACKEND = "nccl"


class Rank:
    """Has one method per request that all ranks fulfil together. Only rank 0 is given tensors."""

    def __init__(self, begin_step):
        self.begin_step = begin_step
        self.sessions = {}
        self.groups = {}  # by their size

    def join(self, gpus, cold_bytes, store=None):
        """Joins the others. Rank 0 has the store in which they find each other."""
        self.rank = int(os.environ["RANK"]) if store is None else 0
        size = len(gpus)
        self.device = torch.device("cuda", gpus[self.rank])
        torch.cuda.set_device(self.device)
        if store is None:
            host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            store = dist.TCPStore(host, port, size)
        dist.init_process_group(BACKEND, store=store, rank=self.rank, world_size=size)
        self.clock = CudaClock(self.device, cold_bytes)
        self.providers = {provider.name: provider for provider in group_providers()}

    def prepare(self, session, provider, problem):
        group = self.group_of(problem["gpus"])
        if group:
            self.sessions[session] = GroupSession(group, self.providers[provider], problem)

    def group_of(self, size):
        """The first ranks; None on others."""
        if size not in self.groups:
            group = dist.new_group(range(size))  # a call of all ranks, whoever is in it
            is_in_it = self.rank < size
            self.groups[size] = Group(group, self.device, self.begin_step) if is_in_it else None
        return self.groups[size]

    def prepare_inputs(self, session, inputs=None):
        return self.of(session, "prepare_inputs", inputs)

    def run(self, session, timed, outputs=None):
        return self.of(session, "run", timed, outputs)

    def of(self, session, method, *arguments):
        """Ranks outside of the group have no such session."""
        if session not in self.sessions:
            return {}
        return getattr(self.sessions[session], method)(*arguments)

    def close(self, session):
        self.sessions.pop(session, None)

    def evict_caches(self):
        self.clock.evict_caches()


class Group:
    """The ranks that share a problem."""

    def __init__(self, group, device, begin_step):
        self.group, self.device, self.begin_step = group, device, begin_step
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.mesh = DeviceMesh.from_group(group, device.type)
        self.clock = GroupClock(self)

    def most(self, value):
        """The largest value that a rank has."""
        values = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(values, dist.ReduceOp.MAX, self.group)
        return values.item()

    def scatter(self, full, own, tokens):
        """Gives each rank its tokens of rank 0's tensor, [batch, heads, length, head_dim]."""
        parts = [full.index_select(2, numbers) for numbers in tokens] if self.rank == 0 else None
        dist.scatter(own, parts, 0, self.group)

    def gather(self, own, full, tokens):
        """Puts each rank's tokens into rank 0's tensor."""
        parts = [torch.empty_like(own) for _ in tokens] if self.rank == 0 else None
        dist.gather(own, parts, 0, self.group)
        for numbers, part in zip(tokens, parts or []):
            full.index_copy_(2, numbers, part)


class GroupClock(CudaClock):
    """Lets the GPUs begin together; its time is that of the slowest."""

    def __init__(self, group):
        super().__init__(group.device, 0)
        self.group = group
        self.token = torch.zeros(1, device=group.device)

    def meet(self):
        dist.all_reduce(self.token, group=self.group.group)  # a kernel, which the stream waits for

    def most(self, value):
        return self.group.most(value)

    def launch(self, work):
        self.group.begin_step("launch")
        result = super().launch(work)
        self.group.begin_step("compute")
        return result


class GroupSession:
    """A session on this rank's tokens, between untimed copies of them from rank 0 and back."""

    def __init__(self, group, provider, problem):
        self.group, self.provider, self.problem = group, provider, problem
        self.part = part_of(problem)
        self.tokens = [tokens_of(rank, problem, group.device) for rank in range(group.size)]
        self.session = sessions.make_session(group.clock, provider, self.part)
        backward = problem["pass"] == "backward"
        self.inputs = ["q", "k", "v", "d_o"] if backward else ["q", "k", "v"]
        self.outputs = ["dq", "dk", "dv"] if backward else ["o", "logsumexp"]

    def empty(self, name):
        """Memory for this rank's tokens of a tensor."""
        heads = self.part["kv_heads" if name in ("k", "v", "dk", "dv") else "q_heads"]
        columns, dtype = self.part["head_dim"], DTYPES[self.part["dtype"]]
        if name == "logsumexp":
            columns, dtype = 1, torch.float32
        return torch.empty(self.part["batch"], heads, self.part["q_len"], columns, dtype=dtype,
                           device=self.group.device)

    def prepare_inputs(self, inputs):
        own = {name: self.empty(name) for name in self.inputs}
        self.group.begin_step("scatter")
        for name, tensor in own.items():
            self.group.scatter(inputs and inputs[name], tensor, self.tokens)
        self.group.begin_step("prepare")
        return self.in_context(lambda: self.session.prepare_inputs(own))

    def run(self, timed, outputs):
        own = {name: self.empty(name) for name in self.outputs}
        answer = self.in_context(lambda: self.session.run(own, timed))
        self.group.begin_step("gather")
        for name, tensor in own.items():
            self.group.gather(tensor, outputs and outputs[name], self.tokens)
        for name, value in answer.items():
            if name != "kernel":
                answer[name] = self.group.most(value)
        return answer

    def in_context(self, work):
        return self.provider.context(self.group.mesh, self.problem, work)
