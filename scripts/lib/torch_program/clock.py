"""How long work takes on a device, what memory it takes there, and caches without earlier work."""

import time

import torch


class CpuClock:
    """The monotonic clock around work that the calling thread waits for."""

    def __init__(self, device, cold_bytes):
        self.buffer = torch.zeros(cold_bytes // 4, dtype=torch.int32, device=device)

    def run(self, work):
        """Runs it, untimed; returns what it gave and, in a dictionary, what was seen."""
        return work(), {}

    def time(self, work):
        """Runs it; returns what it gave and the seconds that it took."""
        start = time.perf_counter_ns()
        result = work()
        return result, (time.perf_counter_ns() - start) * 1e-9

    def watch_memory(self):
        pass

    def memory_growth(self):
        """The bytes in use beyond those at watch_memory(): the most since, and now. None where
        nobody counts."""
        return None

    def evict_caches(self):
        """Reads a clean buffer: dirty lines would be written back on the time of what follows."""
        self.buffer.sum()


class CudaClock(CpuClock):
    """Events around work that waits in the stream until all of it is launched."""

    LEAST_HOLD_SECONDS = 2e-4
    MOST_HOLD_SECONDS = 10
    HOLD_LAUNCHES = 4  # that the stream waits for, each as long as the last one took
    CYCLES_A_SECOND = 2e9  # of a fast clock; a slow one holds for longer

    def __init__(self, device, cold_bytes):
        super().__init__(device, cold_bytes)
        self.start, self.stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.launch_seconds = 0

    def run(self, work):
        """Sees the seconds that the host took to launch it, and those for which the device worked
        on when the stream was done."""
        torch.cuda.synchronize()
        result = self.launch(work)
        torch.cuda.current_stream().synchronize()
        start = time.perf_counter_ns()
        torch.cuda.synchronize()
        return result, {"host_seconds": self.launch_seconds,
                        "seconds_behind": (time.perf_counter_ns() - start) * 1e-9}

    def launch(self, work):
        start = time.perf_counter_ns()
        result = work()
        self.launch_seconds = (time.perf_counter_ns() - start) * 1e-9
        return result

    def time(self, work):
        hold = max(self.LEAST_HOLD_SECONDS, self.HOLD_LAUNCHES * self.launch_seconds)
        while hold <= self.MOST_HOLD_SECONDS:
            torch.cuda.synchronize()
            torch.cuda._sleep(int(hold * self.CYCLES_A_SECOND))
            self.start.record()
            result = self.launch(work)
            self.stop.record()
            began_too_early = self.start.query()
            torch.cuda.synchronize()
            if not began_too_early:
                return result, self.start.elapsed_time(self.stop) * 1e-3
            # The time between the events has some of the launch in it.
            del result
            hold *= 2
        raise RuntimeError("it waits for the device, or takes seconds to launch: events around it "
                           "cannot time it")

    def watch_memory(self):
        torch.cuda.reset_peak_memory_stats()
        self.before = torch.cuda.memory_allocated()

    def memory_growth(self):
        return (torch.cuda.max_memory_allocated() - self.before,
                torch.cuda.memory_allocated() - self.before)


def make_clock(device, cold_bytes):
    return (CudaClock if device.type == "cuda" else CpuClock)(device, cold_bytes)
