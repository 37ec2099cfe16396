#include "measure/sampler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <span>

#include "measure/stats.h"

namespace flashbench {

namespace {

constexpr double kWarmupDrift = 0.01;   // warm if the medians of successive halves differ by less
constexpr double kWarmupCapFactor = 4;  // times warmup_seconds: then continue even if not warm
constexpr size_t kWarmupWindow = 8;     // recent runs, in two halves that are compared

// The state of one contender through warm-up and rounds.
class Track {
 public:
  Track(Device& device, const Contender& contender, const MeasureOptions& options)
      : device_(device), contender_(contender), options_(options) {
    timing_.measurement.cache = options.cache;
  }

  void warm_up() {
    const Working working(contender_);
    const Spending spending(timing_.warmup_seconds);
    guarded([&] {
      replay_ = device_.replayable(contender_.run);
      return 0;
    });
    timing_.measurement.graph_nodes = replay_.graph_nodes;
    timing_.measurement.host_seconds = replay_.host_seconds;
    if (timing_.error) return;
    std::vector<double> runs;
    double spent = 0;
    while (!warmed_up(runs, spent)) {
      runs.push_back(guarded([&] { return timed_run(); }));
      if (timing_.error) return;
      spent += runs.back();
    }
    timing_.measurement.warmup_runs = static_cast<int>(runs.size());
  }

  void take_sample() {
    const Working working(contender_);
    const Spending spending(timing_.sample_seconds);
    const double seconds = guarded([&] {
      if (options_.cache == CacheState::cold) {
        contender_.before();
        device_.evict_caches();
      } else {
        replay_.launch();
        contender_.before();
      }
      const double elapsed = timed_run_between_core_times();
      if (const auto state = device_.state()) timing_.measurement.states.push_back(*state);
      contender_.after();
      return elapsed;
    });
    if (timing_.error) return;
    timing_.measurement.seconds.push_back(seconds);
  }

  bool failed() const { return timing_.error != nullptr; }
  bool can_go_on() const {
    const bool out_of_time = !samples().empty() && timing_.sample_seconds >= options_.max_seconds;
    return !failed() && !out_of_time && samples().size() < max_samples();
  }

  bool prolongs() const { return contender_.prolongs; }

  bool precise() const {
    if (samples().size() < static_cast<size_t>(options_.min_samples)) return false;
    const auto width = relative_interval_width(samples());
    return width && *width <= options_.target_ci_width;
  }

  Timing finish(bool interrupted) {
    // Keep core times only if every sample has them.
    if (timing_.measurement.core_times.size() != samples().size()) {
      timing_.measurement.core_times.clear();
    }
    timing_.measurement.stop_reason = interrupted                         ? "interrupted"
                                      : precise()                         ? "interval"
                                      : samples().size() >= max_samples() ? "max_samples"
                                                                          : "time_cap";
    return std::move(timing_);
  }

 private:
  class Working {
   public:
    explicit Working(const Contender& contender) : contender_(contender) {
      contender_.at_work(true);
    }
    ~Working() { contender_.at_work(false); }
    Working(const Working&) = delete;
    Working& operator=(const Working&) = delete;

   private:
    const Contender& contender_;
  };

  // Adds the wall time of its lifetime to a sum.
  class Spending {
   public:
    explicit Spending(double& sum) : sum_(sum) {}
    ~Spending() {
      sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }
    Spending(const Spending&) = delete;
    Spending& operator=(const Spending&) = delete;

   private:
    double& sum_;
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  };

  const std::vector<double>& samples() const { return timing_.measurement.seconds; }
  size_t max_samples() const { return static_cast<size_t>(options_.max_samples); }

  double timed_run() { return device_.time(replay_.launch); }

  // Reads processor time right beside the run and the wait time outside of that, because reading it
  // takes processor time. If this thread has to wait in between, the wait does not belong to the
  // sample.
  double timed_run_between_core_times() {
    double around = 0, elapsed = 0;
    std::optional<double> ran, waited;
    {
      const Spending spending(around);
      const auto waited_before = device_.waited_seconds(), ran_before = device_.ran_seconds();
      elapsed = timed_run();
      const auto ran_after = device_.ran_seconds(), waited_after = device_.waited_seconds();
      if (ran_before && ran_after) ran = *ran_after - *ran_before;
      if (waited_before && waited_after) waited = *waited_after - *waited_before;
    }
    if (ran && waited) {
      const double outside = std::max(0.0, around - elapsed);
      timing_.measurement.core_times.push_back(
          {std::max(0.0, *ran), std::max(0.0, *waited - outside)});
    }
    return elapsed;
  }

  // A failure of the contender ends only its own timing.
  double guarded(const std::function<double()>& work) {
    try {
      return work();
    } catch (...) {
      timing_.error = std::current_exception();
      return 0;
    }
  }

  bool warmed_up(const std::vector<double>& runs, double spent) const {
    if (runs.size() < static_cast<size_t>(options_.warmup_runs)) return false;
    if (spent < options_.warmup_seconds) return false;
    if (spent >= kWarmupCapFactor * options_.warmup_seconds) return true;
    if (runs.size() < kWarmupWindow) return false;
    const std::span window = std::span(runs).last(kWarmupWindow);
    const double earlier = median(window.first(kWarmupWindow / 2));
    const double later = median(window.last(kWarmupWindow / 2));
    return std::abs(later - earlier) <= kWarmupDrift * earlier;
  }

  Device& device_;
  const Contender& contender_;
  const MeasureOptions& options_;
  Replay replay_;
  Timing timing_;
};

}  // namespace

std::optional<double> median_state(const Measurement& measurement, double DeviceState::*member) {
  if (measurement.states.empty()) return std::nullopt;
  std::vector<double> values;
  for (const DeviceState& state : measurement.states) values.push_back(state.*member);
  return median(values);
}

std::vector<Timing> measure_interleaved(Device& device, const std::vector<Contender>& contenders,
                                        const MeasureOptions& options, uint64_t seed,
                                        const std::function<bool()>& interrupted) {
  const LoadWatch load(&device);
  std::vector<Track> tracks;
  for (const Contender& contender : contenders) tracks.emplace_back(device, contender, options);
  for (Track& track : tracks) {
    if (!interrupted()) track.warm_up();
  }

  std::mt19937_64 shuffle_bits(seed);
  std::vector<size_t> order(tracks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto wanting = [](const Track& track) {
    return track.prolongs() && track.can_go_on() && !track.precise();
  };
  while (!interrupted() && std::any_of(tracks.begin(), tracks.end(), wanting)) {
    std::shuffle(order.begin(), order.end(), shuffle_bits);
    for (size_t i : order) {
      if (tracks[i].can_go_on() && !interrupted()) tracks[i].take_sample();
    }
  }

  std::vector<Timing> timings;
  for (Track& track : tracks) timings.push_back(track.finish(interrupted()));
  if (device.info().kind == DeviceKind::cpu) {
    for (Timing& timing : timings) timing.measurement.load = load.so_far();
  }
  return timings;
}

}  // namespace flashbench
