"""Measures time and memory of work on a device, and evicts its caches."""

import time

import torch


class CpuClock:
    """Times work that the calling thread waits for, by the monotonic clock."""

    def __init__(self, device, cold_bytes):
        self.buffer = torch.zeros(cold_bytes // 4, dtype=torch.int32, device=device)

    def run(self, work):
        """Runs the work untimed; returns its result and a dictionary of observations."""
        return work(), {}

    def time(self, work):
        """Runs the work; returns its result and its seconds."""
        return self.wall(work)

    def wall(self, work):
        """Runs work of the host, what it launches included; returns its result and its seconds."""
        start = time.perf_counter_ns()
        result = work()
        return result, (time.perf_counter_ns() - start) * 1e-9

    def watch_memory(self):
        pass

    def memory_growth(self):
        """The bytes in use beyond those at watch_memory(): the peak since, and now. None if they are
        not counted."""
        return

    def evict_caches(self):
        """Reads a clean buffer: dirty lines would be written back while the next work is timed."""
        self.buffer.sum()


class CudaClock(CpuClock):
    """Times work by events around it. The stream waits until all of it is launched."""

    LEAST_HOLD_SECONDS = 2e-4
    MOST_HOLD_SECONDS = 10
    HOLD_LAUNCHES = 4  # hold the stream for as many launches, each as long as the last one
    CYCLES_A_SECOND = 2e9  # of a fast clock; with a slow one the stream is held for longer

    def __init__(self, device, cold_bytes):
        super().__init__(device, cold_bytes)
        self.start, self.stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.launch_seconds = 0

    def run(self, work):
        """Observes the seconds that the host took to launch it, and those for which the device kept
        working after the stream was done."""
        torch.cuda.synchronize()
        result = self.launch(work)
        torch.cuda.current_stream().synchronize()
        start = time.perf_counter_ns()
        torch.cuda.synchronize()
        return result, {"host_seconds": self.launch_seconds,
                        "seconds_behind": (time.perf_counter_ns() - start) * 1e-9}

    def wall(self, work):
        def to_its_end():
            result = work()
            torch.cuda.synchronize()
            return result
        torch.cuda.synchronize()
        return super().wall(to_its_end)

    def launch(self, work):
        start = time.perf_counter_ns()
        result = work()
        self.launch_seconds = (time.perf_counter_ns() - start) * 1e-9
        return result

    def time(self, work):
        hold = self.most(max(self.LEAST_HOLD_SECONDS, self.HOLD_LAUNCHES * self.launch_seconds))
        while hold <= self.MOST_HOLD_SECONDS:
            torch.cuda.synchronize()
            torch.cuda._sleep(int(hold * self.CYCLES_A_SECOND))
            self.meet()
            self.start.record()
            result = self.launch(work)
            self.stop.record()
            began_too_early = self.start.query()
            torch.cuda.synchronize()
            if not self.most(began_too_early):
                return result, self.most(self.start.elapsed_time(self.stop) * 1e-3)
            # The host was still launching after the hold: the time between the events contains part
            # of it.
            del result
            hold *= 2
        raise RuntimeError("it waits for the device, or takes seconds to launch: events around it "
                           "cannot time it")

    def meet(self):
        """Lets the stream wait for those of other GPUs that work on the same, if there are any."""

    def most(self, value):
        """The largest of the values that those GPUs' clocks have."""
        return value

    def watch_memory(self):
        torch.cuda.reset_peak_memory_stats()
        self.before = torch.cuda.memory_allocated()

    def memory_growth(self):
        return (torch.cuda.max_memory_allocated() - self.before,
                torch.cuda.memory_allocated() - self.before)


def make_clock(device, cold_bytes):
    return (CudaClock if device.type == "cuda" else CpuClock)(device, cold_bytes)
