#include "case/case_counters.h"

#include <stdexcept>

#include "case/support.h"
#include "verify/oracle.h"

namespace flashbench {

namespace {

// Makes the same inputs as in the case's timing. A backward pass needs every row of the exact
// forward pass, but no reference of its own.
HostTensors inputs_of(const Case& item, Device& device) {
  const Problem& problem = item.problem;
  HostTensors host(problem, item.inputs, *device.stream().threads);
  if (problem.pass == Pass::backward) {
    const Oracle oracle(problem, host.inputs(), Dtype::fp32, OracleBudget{.fp64_flops = 1}, device);
    oracle.exact_forward(host.mutable_o(), host.mutable_logsumexp());
  }
  return host;
}

CounterReport failed(const CounterReader& reader, const std::string& reason) {
  CounterReport report;
  report.state = reader.state();
  report.state.status = CounterStatus::failed;
  report.state.reason = reason;
  return report;
}

CounterReport count(const Provider& provider, const Case& item, Device& device,
                    const DeviceInputs& inputs, const OutputFormat& o, CounterReader& reader,
                    const MeasureOptions& options) {
  try {
    const auto detail =
        options.counters == CounterMode::on ? CounterDetail::everything : CounterDetail::run;
    const auto session = provider.prepare(item.problem, device);
    if (session->group() != nullptr && device.cuda_ranks() != nullptr) {
      throw std::runtime_error("the work of several GPUs is not counted");
    }
    const DeviceOutputs outputs(device, item.problem.of_one_device(), item.placement, true, o);
    const auto run = [&] { session->run(inputs.view(), outputs.view()); };
    session->prepare_inputs(inputs.view());
    run();  // triggers lazy loading
    device.synchronize();
    CounterReport report =
        count_run(device, reader, item.problem.dtype, options.cache, detail, run);
    // Counts without a kernel name for each are useless.
    if (report.launches.size() != device.kernels_of(run).size()) report.launches.clear();
    return report;
  } catch (const std::exception& error) {
    return failed(reader, error.what());
  }
}

}  // namespace

std::vector<CounterReport> count_case(const Case& item,
                                      const std::vector<const Provider*>& providers, Device& device,
                                      CounterReader& reader, const CaseRunOptions& options,
                                      const Watch& watch) {
  const HostTensors host = inputs_of(item, device);
  const DeviceInputs inputs(device, item.problem.of_one_device(), item.placement, host.inputs());
  std::vector<CounterReport> reports;
  for (size_t i = 0; i < providers.size(); ++i) {
    const AtWork at_work(watch, static_cast<int>(i));
    reports.push_back(watch.interrupted()
                          ? failed(reader, "interrupted")
                          : count(*providers[i], item, device, inputs,
                                  output_format(*providers[i], item.problem, host.inputs()), reader,
                                  options.measure));
  }
  return reports;
}

}  // namespace flashbench
