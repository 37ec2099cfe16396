#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <memory>

#include "attention/exit_codes.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/numbers.h"
#include "device/nccl_ranks.h"
#include "measure/ceilings.h"
#include "measure/counters.h"
#include "measure/links.h"
#include "plan/count_of.h"
#include "report/environment.h"
#include "report/json.h"
#include "report/probes.h"
#include "worker/interrupt.h"

namespace flashbench {

namespace {

struct InfoFlags {
  DeviceFlags device;
  MeasureFlags measure;
  bool no_measure = false, json = false;
};

void print_text(const nlohmann::ordered_json& json, const std::string& indent) {
  for (const auto& [key, value] : json.items()) {
    if (value.is_object()) {
      fmt::print("{}{}\n", indent, key);
      print_text(value, indent + "  ");
    } else {
      fmt::print("{}{}: {}\n", indent, key,
                 value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
}

void print_ceilings(const std::vector<Ceiling>& ceilings) {
  fmt::print("ceilings (median of interleaved samples)\n");
  for (const Ceiling& ceiling : ceilings) {
    const auto width = relative_interval_width(ceiling.measurement.seconds);
    fmt::print("  {}: {:.1f} G{}{}, {} ({})\n", ceiling.name, ceiling.rate() * 1e-9, ceiling.unit,
               width ? fmt::format(" +- {:.1f}%", *width * 50) : "",
               count_of(ceiling.measurement.seconds.size(), "sample"), ceiling.description);
  }
  std::fflush(stdout);  // so that warnings follow the text that they are about
  for (const std::string& doubt : doubts(ceilings)) fmt::print(stderr, "warning: {}\n", doubt);
}

constexpr size_t kLinkBytes = size_t{256} << 20;

double in_gbps(double rate) {
  return std::round(rate * 1e-8) / 10;
}

// Rows of the device that receives, columns of the one that sends, in GB/s; null from itself.
nlohmann::ordered_json matrix_json(const std::vector<double>& rates, int ranks) {
  auto rows = nlohmann::ordered_json::array();
  const auto count = static_cast<size_t>(ranks);
  for (size_t to = 0; to < count; ++to) {
    auto row = nlohmann::ordered_json::array();
    for (size_t from = 0; from < count; ++from) {
      const double rate = rates[to * count + from];
      row.push_back(rate == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(in_gbps(rate)));
    }
    rows.push_back(row);
  }
  return rows;
}

nlohmann::ordered_json links_json(const Links& links) {
  return {{"bytes_of_a_copy", links.bytes},
          {"one_way_gbps", matrix_json(links.one_way, links.ranks)},
          {"both_ways_gbps", matrix_json(links.both_ways, links.ranks)},
          {"all_at_once_gbps", in_gbps(links.all_at_once)}};
}

// The rates by NCCL, or a sentence that says why there are none.
nlohmann::ordered_json nccl_json(Device& device) {
  const NcclLibrary& library = nccl_library();
  if (const auto why = why_no_nccl(device.info(), library)) return *why;
  const NcclRates rates = measure_nccl(device, device.info().ranks, kLinkBytes);
  return {{"version", library.version},
          {"path", library.path},
          {"bytes", rates.bytes},
          {"send_receive_busbw_gbps", in_gbps(rates.send_receive)},
          {"all_gather_busbw_gbps", in_gbps(rates.all_gather)},
          {"all_to_all_busbw_gbps", in_gbps(rates.all_to_all)},
          {"reduce_scatter_busbw_gbps", in_gbps(rates.reduce_scatter)}};
}

// Throws NoDevice if counters are required and cannot be read.
CounterState counters_of(Device& device, CounterMode mode) {
  if (mode == CounterMode::off) return {.reason = "switched off"};
  CounterState state = make_counter_reader(device)->state();
  if (mode == CounterMode::on && state.status != CounterStatus::ok) throw NoDevice(why_none(state));
  return state;
}

int info(const InfoFlags& flags, const Invocation& invocation) {
  const auto device =
      make_device(flags.device.device.value_or("auto"), flags.device.threads.value_or(0));
  MeasureOptions measure;
  flags.measure.apply(measure);
  watch_for_interrupts();

  SweepResult result;
  result.meta = meta_json(invocation.argv);
  result.devices = nlohmann::ordered_json::array({device_json(*device)});
  if (!flags.no_measure) result.ceilings = measure_ceilings(*device, measure, interrupted);
  if (device->info().kind == DeviceKind::cuda && !flags.no_measure) {
    result.devices.at(0)["probes"] =
        probes_json(device->info(), wgmma_add_products(*device), result.ceilings);
  }
  if (const int ranks = device->info().ranks; ranks > 1 && !flags.no_measure) {
    result.devices.at(0)["links"] = links_json(measure_links(*device, ranks, kLinkBytes));
    result.devices.at(0)["nccl"] = nccl_json(*device);
  }
  if (const int code = interrupt_exit_code()) return code;
  // Last, because it loads a profiler into this process.
  result.devices.at(0)["counters"] = counter_state_to_json(counters_of(*device, measure.counters));
  if (flags.json) {
    fmt::print("{}", to_json(result));
    return exit_codes::kOk;
  }
  print_text(result.meta, "");
  print_text(result.devices.at(0), "");
  if (!flags.no_measure) print_ceilings(result.ceilings);
  return exit_codes::kOk;
}

}  // namespace

void add_info(CLI::App& app, Invocation& invocation) {
  CLI::App& command = *app.add_subcommand("info",
                                          "Print the device, versions, measured ceilings (GEMM, "
                                          "copy, read) and, of a GPU, probes of its "
                                          "8-bit arithmetic");
  auto flags = std::make_shared<InfoFlags>();
  command.add_option("--device", flags->device.device, "auto, cpu, cuda, cuda:N, or cuda:N,N,...")
      ->type_name("DEVICE");
  command.add_option("--threads", flags->device.threads, "CPU threads (default: all available)")
      ->transform(from_to(1, 4096));
  add_library_options(command);
  flags->measure.add(command);
  command.add_flag("--no-measure", flags->no_measure, "Do not measure the ceilings");
  command.add_flag("--json", flags->json, "Print JSON, with every sample");
  command.callback([flags, &invocation] { invocation.exit_code = info(*flags, invocation); });
}

}  // namespace flashbench
