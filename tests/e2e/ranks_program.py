#!/usr/bin/python3
"""A program for `flashbench --program` with a process for each device (scripts/lib/ranks.py), in
NumPy: each computes rows of its own, and rank 0 waits for all. The provider `shared` is correct; in
the others rank 1 ends, fails or hangs."""

import itertools
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy_program
from numpy_program import Failure

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/lib"))
import ranks

PROVIDERS = ["shared", "dies", "fails", "hangs"]
numbers = itertools.count()


def own_rows(rank, problem):
    """One of each `gpus` rows: flashbench does not see which rank has which."""
    return slice(rank, None, problem["gpus"])


def compute(rank, provider, problem, folder, number):
    """Writes the rank's rows of the outputs to a file."""
    if rank == 1:
        misbehave(provider)
    with np.load(f"{folder}/{number}.npz") as inputs:
        results = numpy_program.Session("exact", problem).results(inputs)
    rows = {name: values[:, :, own_rows(rank, problem)] for name, values in results.items()}
    written = f"{folder}/{number}.{rank}"
    np.savez(f"{written}.part.npz", **rows)
    os.rename(f"{written}.part.npz", f"{written}.npz")


def misbehave(provider):
    if provider == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if provider == "fails":
        raise Failure("other", "something broke")
    if provider == "hangs":
        time.sleep(3600)


class Session:
    def __init__(self, peers, provider, problem):
        self.peers, self.provider, self.problem = peers, provider, problem
        self.folder = tempfile.TemporaryDirectory()

    def prepare_inputs(self, inputs):
        self.inputs = inputs

    def run(self, outputs):
        number = next(numbers)
        np.savez(f"{self.folder.name}/{number}.npz",
                 **{name: numpy_program.load(view) for name, view in self.inputs.items()})
        arguments = {"provider": self.provider, "problem": self.problem, "folder": self.folder.name,
                     "number": number}
        try:
            self.peers.do({"do": "run", **arguments}, lambda: self.own_work(outputs, arguments))
        except ranks.RankFailed as error:
            raise Failure(error.kind, str(error)) from None

    def own_work(self, outputs, arguments):
        self.peers.step("compute")
        compute(0, **arguments)
        self.peers.step("wait")
        for rank in range(self.problem["gpus"]):
            file = Path(self.folder.name, f"{arguments['number']}.{rank}.npz")
            while not file.exists():  # as a GPU waits for another
                time.sleep(0.001)
            with np.load(file) as results:
                for name, view in outputs.items():
                    rows = numpy_program.tensor(view)[:, :, own_rows(rank, self.problem)]
                    rows[...] = results[name].reshape(rows.shape)


class Program(numpy_program.Program):
    def open(self, kind, index, threads, cold_bytes, providers):
        self.blocks, self.sessions, self.peers = {}, [], {}
        return {"providers": [{"name": name, "description": "NumPy", "logsumexp": True,
                               "axes": ["gpus", "split"]} for name in providers or PROVIDERS],
                "facts": {}}

    def prepare(self, provider, problem):
        size = problem["gpus"]
        if size not in self.peers:
            self.peers[size] = ranks.Peers([sys.argv[0], "peer"], size, 0, end)
        return self.keep(Session(self.peers[size], provider, problem))


def end(message):
    print(json.dumps({"error": {"kind": "device_lost", "message": message}}), flush=True)
    os._exit(1)


def make_answer(begin_step):
    rank, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    assert rank < size and os.environ["LOCAL_RANK"] == os.environ["RANK"]

    def answer(request):
        begin_step("compute")
        try:
            compute(rank, **{name: value for name, value in request.items() if name != "do"})
        except Failure as failure:
            return {"error": {"kind": failure.kind, "message": str(failure)}}
        return {}

    return answer


def say_that_it_lives():
    """Keeps a pipe open that a test has made: it ends when all processes have ended."""
    pipe = os.open(os.environ["RANKS_PROGRAM_PIPE"], os.O_WRONLY)
    os.write(pipe, b"r")


if __name__ == "__main__":
    say_that_it_lives()
    if sys.argv[1:] == ["serve"]:
        ranks.end_with_parent()
        numpy_program.serve(Program())
    elif sys.argv[1:] == ["peer"]:
        ranks.serve_as_peer(make_answer)
