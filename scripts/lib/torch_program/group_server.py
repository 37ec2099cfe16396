"""Answers flashbench's requests with the help of a process on each GPU."""

import os
import sys

import ranks
import torch
import torch.distributed as dist
from torch_program import serve as one_gpu
from torch_program.context_parallel import group_providers, refuse
from torch_program.group import Rank


def serve():
    ranks.end_with_parent()
    one_gpu.serve(GroupServer)
    os._exit(0)  # libraries may wait for other ranks, which end with this one


def serve_as_peer():
    def make_answer(begin_step):
        rank = Rank(begin_step)
        return lambda request: one_gpu.answer_or_error(rank, request)

    ranks.serve_as_peer(make_answer)


class GroupServer(one_gpu.Server):
    """Rank 0. It has flashbench's tensors and the ceiling, and shares what sessions do."""

    def __init__(self, give):
        self.give = give
        self.peers = None

    def open(self, kind, index, threads, cold_bytes, providers, gpus=()):
        if kind != "cuda":
            raise one_gpu.BadRequest("it runs on GPUs: expected --device cuda:0,1,...")
        self.gpus, self.cold_bytes = gpus, cold_bytes
        answer = super().open(kind, index, threads, cold_bytes, providers)
        answer["facts"]["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        return answer

    def offered(self):
        return group_providers()

    def start_peers(self):
        size = len(self.gpus)
        any_port = 0
        store = dist.TCPStore(ranks.MASTER_ADDR, any_port, size, is_master=True,
                              wait_for_workers=False)
        command = [sys.executable, sys.argv[0], "peer"]
        self.peers = ranks.Peers(command, size, store.port, self.end)
        self.rank = Rank(self.peers.step)
        self.together("join", {"store": store}, gpus=self.gpus, cold_bytes=self.cold_bytes)

    def end(self, message):
        """The ranks cannot go on: flashbench starts all of them again."""
        self.give(one_gpu.failure("device_lost", message))
        os._exit(1)

    def together(self, request, own, **arguments):
        """All ranks fulfil the request, this one with arguments of its own."""
        return self.peers.do({"do": request, **arguments},
                             lambda: getattr(self.rank, request)(**arguments, **own))

    def prepare(self, provider, problem):
        refuse(problem, self.gpus)
        if self.peers is None:
            self.start_peers()
        answer = self.keep(None)  # the ranks have it
        self.together("prepare", {}, **answer, provider=provider, problem=problem)
        return answer

    def is_shared(self, session):
        return self.sessions[session] is None

    def prepare_inputs(self, session, inputs):
        if not self.is_shared(session):
            return super().prepare_inputs(session, inputs)
        return self.together("prepare_inputs", {"inputs": self.tensors(inputs)}, session=session)

    def run(self, session, outputs, timed):
        if not self.is_shared(session):
            return super().run(session, outputs, timed)
        return self.together("run", {"outputs": self.tensors(outputs)}, session=session,
                             timed=timed)

    def close(self, session):
        if self.is_shared(session):
            self.together("close", {}, session=session)
        super().close(session)

    def evict_caches(self):
        if self.peers is None:
            super().evict_caches()
        else:
            self.together("evict_caches", {})
