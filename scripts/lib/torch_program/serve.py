"""Answers flashbench's requests, a line of JSON each (src/program/process.h), until it closes."""

import json
import sys

import torch
from ranks import RankFailed, own_output
from torch_program import sessions
from torch_program.clock import make_clock
from torch_program.memory import Memory
from torch_program.provider import Unsupported
from torch_program.providers import all_providers


class BadRequest(Exception):
    """The request cannot be fulfilled."""


def serve(make_server=None):
    """`make_server`, if given, takes a function that gives an answer."""
    # Libraries print to standard output: that must not come between the answers.
    output = own_output()

    def give(answer):
        output.write(json.dumps(answer) + "\n")

    server = make_server(give) if make_server else Server()
    for line in sys.stdin:
        give(answer_or_error(server, json.loads(line)))


def answer_or_error(server, request):
    try:
        return getattr(server, request.pop("do"))(**request) or {}
    except torch.OutOfMemoryError as error:
        return failure("out_of_memory", error)
    except RankFailed as error:
        return failure(error.kind, error)
    except Unsupported as error:
        return failure("unsupported", error)
    except BadRequest as error:
        return failure("bad_input", error)
    except Exception as error:  # from any library; the row contains the message
        # After a device error nothing on this device succeeds in this process.
        return failure("device_lost" if "CUDA error" in str(error) else "other", error)


def failure(kind, error):
    """The error in one line, without PyTorch's advice on its allocator."""
    message = str(error).strip().split("\n")[0].split(" Including non-PyTorch memory")[0]
    return {"error": {"kind": kind, "message": message or type(error).__name__}}


class Server:
    """Has one method per request, with its name, that returns the answer."""

    def open(self, kind, index, threads, cold_bytes, providers, gpus=()):
        if kind == "cuda":
            if not torch.cuda.is_available():
                raise BadRequest("this PyTorch cannot use the GPU: expected a build with CUDA for "
                                 f"its driver, found {torch.__version__}")
            self.device = torch.device("cuda", index)
            torch.cuda.set_device(self.device)
        else:
            self.device = torch.device("cpu")
            torch.set_num_threads(threads)
        self.memory = Memory(self.device)
        self.clock = make_clock(self.device, cold_bytes)
        self.sessions = {}
        self.providers = chosen(self.offered(), providers)
        return {"providers": [{"name": p.name, "description": p.description,
                               "logsumexp": p.gives_logsumexp, "axes": p.axes}
                              for p in self.providers.values()],
                "facts": facts(self.device)}

    def offered(self):
        return all_providers(self.device)

    def allocate(self, bytes):
        return {"address": self.memory.allocate(bytes)}

    def free(self, address):
        self.memory.free(address)

    def write(self, address, bytes, file):
        self.memory.write(address, bytes, file)

    def read(self, address, bytes, file):
        self.memory.read(address, bytes, file)

    def poison(self, address, bytes):
        self.memory.poison(address, bytes)

    def poisoned_elements(self, address, elements, element_bytes):
        return {"count": self.memory.poisoned_elements(address, elements, element_bytes)}

    def flip_signs(self, address, elements, element_bytes):
        self.memory.flip_signs(address, elements, element_bytes)

    def hash(self, address, bytes, seed):
        return {"hash": self.memory.hash(address, bytes, seed)}

    def evict_caches(self):
        self.clock.evict_caches()

    def prepare(self, provider, problem):
        return self.keep(sessions.make_session(self.clock, self.providers[provider], problem))

    def prepare_gemm(self, dtype, size):
        return self.keep(sessions.Gemm(self.clock, self.device, dtype, size))

    def keep(self, session):
        number = max(self.sessions, default=0) + 1
        self.sessions[number] = session
        return {"session": number}

    def prepare_inputs(self, session, inputs):
        return self.sessions[session].prepare_inputs(self.tensors(inputs))

    def run(self, session, outputs, timed):
        return self.sessions[session].run(self.tensors(outputs), timed)

    def close(self, session):
        del self.sessions[session]

    def tensors(self, views):
        return {name: self.memory.tensor(view) for name, view in views.items()}


def chosen(providers, names):
    """The named providers, in the order of the names; without names, all but those on request only."""
    known = {provider.name: provider for provider in providers}
    for name in names:
        if name not in known:
            raise BadRequest(f"providers: expected one of {', '.join(known)}, got \"{name}\"")
    return {name: provider for name, provider in known.items()
            if (name in names if names else not provider.on_request_only)}


def facts(device):
    found = {"torch": torch.__version__}
    if device.type == "cuda":
        found["torch_cuda"] = str(torch.version.cuda)
        found["torch_cudnn"] = str(torch.backends.cudnn.version())
    return found
