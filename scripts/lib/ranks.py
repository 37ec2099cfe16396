"""For programs of `flashbench --program` that have a process on each GPU, their ranks.

Rank 0 is the process that flashbench starts and talks to. It starts the others, its peers, with
torchrun's variables, and tells them what to do: a line of JSON each on their standard input. Each
answers with a line on its standard output; before that, it may say which step it begins.

While one rank is stuck, has failed or has ended, the others may wait for it where nothing can
interrupt them. So rank 0 names that rank to flashbench, and ends itself. No rank outlives the
process that started it.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

MASTER_ADDR = "127.0.0.1"
PR_SET_PDEATHSIG = 1
GRACE_SECONDS = 5  # after one rank has failed, for the others to fail as well
TICK_SECONDS = 0.2
FIRST_REPORT_SECONDS = 1  # of a request that takes long; then after 2, 4, 8, ...


class RankFailed(Exception):
    """Another rank has failed; the kind is one of an answer's error (src/program/process.h)."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def end_with_parent():
    """Lets the kernel kill this process when the one that started it ends."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def own_output():
    """A file of what is now the standard output. What libraries print goes to standard error."""
    output = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return output


def serve_as_peer(make_answer):
    """A peer's whole work. `make_answer` takes a function that says which step begins, and returns
    one that answers a request."""
    end_with_parent()
    output = own_output()

    def say(line):
        output.write(json.dumps(line) + "\n")

    answer = make_answer(lambda step: say({"step": step}))
    for line in sys.stdin:
        say(answer(json.loads(line)))
    os._exit(0)  # libraries may wait for other ranks


class Peers:
    """The ranks from 1 on, as rank 0 sees them. Only its main thread calls these methods."""

    def __init__(self, command, size, port, end):
        """Starts the command size - 1 times, with a port of rank 0 as MASTER_PORT. If the ranks
        cannot go on, another thread calls `end` with the reason, which must end this process."""
        self.end = end
        self.news = threading.Condition()
        self.request = None  # that is under way
        self.lost = None  # why the ranks cannot go on
        self.ranks = [Progress() for _ in range(size)]
        self.processes = {rank: start(command, rank, size, port) for rank in range(1, size)}
        for rank in self.processes:
            threading.Thread(target=self.listen, args=[rank], daemon=True).start()
        threading.Thread(target=self.watch, daemon=True).start()

    def do(self, request, work):
        """All ranks do it together, this one by calling `work`. Returns what that returns. Raises
        its exception, or RankFailed for that of a peer."""
        with self.news:
            if self.lost:
                raise RankFailed("device_lost", self.lost)
            self.request, self.began = request["do"], time.monotonic()
            self.failed_at, self.reported = None, 0
            self.ranks = [Progress() for _ in self.ranks]
        for process in self.processes.values():
            tell(process, request)
        try:
            result = work()
        except Exception as error:
            self.note(0, {"error": {"message": str(error)}})
            self.wait_for_peers()
            raise
        self.note(0, {})
        self.wait_for_peers()
        for rank, progress in enumerate(self.ranks):
            if error := progress.answer.get("error"):
                raise RankFailed(error["kind"], f"rank {rank}: {error['message']}")
        return result

    def step(self, name):
        """This rank begins a step of the request."""
        self.note(0, {"step": name})

    def note(self, rank, said):
        with self.news:
            progress = self.ranks[rank]
            if "step" in said:
                progress.steps.append(said["step"])
            else:
                progress.answer = said
            if "error" in said and self.failed_at is None:
                self.failed_at = time.monotonic()
            self.news.notify_all()

    def wait_for_peers(self):
        with self.news:
            self.news.wait_for(lambda: all(progress.answer is not None for progress in self.ranks))
            if self.reported:
                print(f"all ranks have ended {self.request}", file=sys.stderr, flush=True)
            self.request = None

    # ---- other threads

    def listen(self, rank):
        process = self.processes[rank]
        for line in process.stdout:
            self.note(rank, json.loads(line))
        self.lose(f"rank {rank} {how_it_ended(process.wait())}")

    def lose(self, why):
        with self.news:
            self.lost = self.lost or why
            if self.request:
                self.end(self.lost)

    def watch(self):
        while True:
            time.sleep(TICK_SECONDS)
            with self.news:
                if not self.request:
                    continue
                now = time.monotonic()
                if self.failed_at is not None and now - self.failed_at > GRACE_SECONDS:
                    self.lose(self.first_error())
                if now - self.began > max(FIRST_REPORT_SECONDS, 2 * self.reported):
                    self.reported = now - self.began
                    print(self.who_is_behind(), file=sys.stderr, flush=True)

    def first_error(self):
        answers = {rank: progress.answer or {} for rank, progress in enumerate(self.ranks)}
        return next(f"rank {rank}: {answer['error']['message']}; other ranks wait for it"
                    for rank, answer in answers.items() if "error" in answer)

    def who_is_behind(self):
        least = min(progress.count() for progress in self.ranks)
        behind = [rank for rank, progress in enumerate(self.ranks) if progress.count() == least]
        steps = self.ranks[behind[0]].steps
        at = f"step {steps[-1]} of {self.request}" if steps else self.request
        names = f"rank{'s' if len(behind) > 1 else ''} {', '.join(map(str, behind))}"
        return f"{names} did not finish {at} in {self.reported:.0f} s"


class Progress:
    """How far a rank is with a request."""

    def __init__(self):
        self.steps, self.answer = [], None

    def count(self):
        return len(self.steps) if self.answer is None else float("inf")


def start(command, rank, size, port):
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size,
                 "MASTER_ADDR": MASTER_ADDR, "MASTER_PORT": port}
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            bufsize=1, env=environment)


def tell(process, request):
    with contextlib.suppress(BrokenPipeError):  # its listener says how it ended
        process.stdin.write(json.dumps(request) + "\n")


def how_it_ended(status):
    if status >= 0:
        return f"ended with exit code {status}"
    return f"was killed by signal {-status} ({signal.strsignal(-status)})"
