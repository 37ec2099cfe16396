#include "report/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "attention/error.h"
#include "plan/shard.h"
#include "report/csv.h"
#include "report/markdown.h"
#include "report/table.h"
#include "sample_result.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Json, EveryReportOfTheFileIsTheSameByteForByte) {
  const SweepResult result = sample_result();
  const SweepResult again = result_from_json(to_json(result), "memory");
  EXPECT_EQ(to_json(again), to_json(result));
  EXPECT_EQ(to_csv(again), to_csv(result));
  EXPECT_EQ(to_markdown(again), to_markdown(result));
  EXPECT_EQ(to_table(again), to_table(result));
}

TEST(Json, RootMeanSquaresAndWhatTheyMeanComeBack) {
  SweepResult result = sample_result();
  Verdict& verdict = result.records[0].verdict;
  verdict.tensors[0].rel_rms_err = 0.375;
  verdict.coarse = "o is far off";
  const std::string text = to_json(result);
  EXPECT_THAT(text, HasSubstr("\"rel_rms_err\": null"));  // of the logsumexp
  const SweepResult again = result_from_json(text, "memory");
  EXPECT_EQ(again.records[0].verdict.tensors[0].rel_rms_err, 0.375);
  EXPECT_FALSE(again.records[0].verdict.tensors[1].rel_rms_err);
  EXPECT_EQ(again.records[0].verdict.coarse, "o is far off");
  EXPECT_EQ(to_json(again), text);
  EXPECT_EQ(nlohmann::json::parse(text)["results"][0]["notes"],
            nlohmann::json::array({"o is far off"}));
}

TEST(Json, OlderResultsHaveNone) {
  auto json = nlohmann::ordered_json::parse(to_json(sample_result()));
  for (auto& row : json["results"]) {
    for (auto& tensor : row["correctness"]["tensors"]) tensor.erase("rel_rms_err");
  }
  const SweepResult old = result_from_json(json.dump(), "memory");
  EXPECT_FALSE(worst_error(old.records[0].verdict)->rel_rms);
  EXPECT_EQ(verified(old.records[0].verdict), "passed");
}

SweepResult result_of_lengths(Layout layout) {
  SweepResult result = sample_result();
  for (Record& record : result.records) {
    record.item.problem.layout = layout;
    record.item.problem.set_lengths(
        std::make_shared<const Lengths>(std::vector<RequestLengths>{{3, 50}, {20, 7}, {0, 1}}));
  }
  return result;
}

TEST(Json, LengthsOfRequestsComeBack) {
  for (const Layout layout : kLayouts) {
    const SweepResult result = result_of_lengths(layout);
    const std::string text = to_json(result);
    EXPECT_THAT(text, HasSubstr("\"batch_spec\": \"q3s50_q20s7_q0s1\""));
    EXPECT_THAT(text, HasSubstr(" --lengths q3s50_q20s7_q0s1"));
    EXPECT_THAT(text, Not(testing::ContainsRegex("--batch|--q-len|--kv-len")));
    const SweepResult again = result_from_json(text, "memory");
    EXPECT_EQ(again.records[0].item, result.records[0].item);
    EXPECT_EQ(to_json(again), text);
    EXPECT_EQ(to_csv(again), to_csv(result));
  }
}

// The places of all texts in a document.
std::vector<std::string> places_of_texts(const nlohmann::ordered_json& document) {
  std::vector<std::string> places;
  const nlohmann::ordered_json flat = document.flatten();
  for (const auto& [place, value] : flat.items()) {
    if (value.is_string()) places.push_back(place);
  }
  return places;
}

// What reports of a result print, or why it is refused.
std::string all_reports(const std::string& text) {
  try {
    const SweepResult result = result_from_json(text, "memory");
    return to_table(result) + to_csv(result) + to_markdown(result) + to_json(result);
  } catch (const FileError& error) {
    return error.what();
  }
}

// They could change the terminal of whoever prints a result of others.
TEST(Json, NoTextOfAFileBringsControlCharacters) {
  const auto json = nlohmann::ordered_json::parse(to_json(sample_result()));
  const std::vector<std::string> places = places_of_texts(json);
  EXPECT_GT(places.size(), 50u);
  for (const std::string& place : places) {
    auto changed = json;
    auto& text = changed[nlohmann::ordered_json::json_pointer(place)];
    text = text.get<std::string>() +
           "\x1b[31m\x07\xc2\x9b"
           "31m";
    EXPECT_THAT(all_reports(changed.dump()),
                testing::AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\x07")),
                               Not(HasSubstr("\xc2\x9b")), Not(HasSubstr("u001b"))))
        << place;
  }
}

TEST(Json, ControlCharactersOfKeysAreNotInMessages) {
  EXPECT_EQ(all_reports("{\"a\\u001b\": 1, \"a\\u001b\": 2}"),
            "memory: not a flashbench result file: /a?: the key appears twice");
}

TEST(Json, ControlCharactersBecomeQuestionMarks) {
  auto json = nlohmann::ordered_json::parse(to_json(sample_result()));
  auto& row = json["results"][3];  // not ok, so that it has a reason
  row["provider"] = "a\x1b[2J";
  row["kernel"] = "b\x07\n";
  row["reason"] = "c\x1b]0;\x07\n\tlines";
  const Record record = result_from_json(json.dump(), "memory").records[3];
  EXPECT_EQ(record.provider, "a?[2J");
  EXPECT_EQ(record.kernel, "b??");
  EXPECT_EQ(record.reason, "c?]0;?\n\tlines");
}

TEST(Json, LengthsThatContradictTheirBatchAreRefused) {
  for (const char* axis : {"batch", "q_len", "kv_len"}) {
    auto json = nlohmann::ordered_json::parse(to_json(result_of_lengths(Layout::ragged)));
    auto& item = json["results"][0]["case"];
    item[axis] = item[axis].get<int64_t>() + 1;
    try {
      result_from_json(json.dump(), "memory");
      FAIL() << axis;
    } catch (const FileError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string(axis) + ": expected ")) << axis;
      EXPECT_THAT(error.what(), HasSubstr("as lengths has it"));
    }
  }
}

SweepResult result_of_pages(std::shared_ptr<const BlockTable> table) {
  SweepResult result = result_of_lengths(Layout::ragged);
  for (Record& record : result.records) {
    Problem& p = record.item.problem;
    p.pass = Pass::forward;
    p.page_size = 16;
    p.kv_layout = KvLayout::paged_hnd;
    p.block_table = std::move(table);
    if (!p.block_table) p.page_order = PageOrder::reversed;
  }
  return result;
}

TEST(Json, PagesComeBack) {
  const auto table = std::make_shared<BlockTable>(3, 5, 20);
  for (const auto& [b, i] : {std::pair{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 0}, {2, 0}}) {
    table->at(b, i) = 3 * i + 5 * b;
  }
  for (const auto& given : {std::shared_ptr<const BlockTable>(), {table}}) {
    SweepResult result = result_of_pages(given);
    result.records.resize(1);
    const std::string text = to_json(result);
    EXPECT_THAT(text, HasSubstr(given ? " --page-size 16 --kv-layout paged_hnd --block-table "
                                        "20:0,3,6,9_5_10"
                                      : " --page-size 16 --kv-layout paged_hnd --page-order "
                                        "reversed"));
    const SweepResult again = result_from_json(text, "memory");
    EXPECT_EQ(again.records[0].item, result.records[0].item);
    EXPECT_EQ(to_json(again), text);
    EXPECT_EQ(to_csv(again), to_csv(result));
    EXPECT_THAT(to_csv(result), HasSubstr("page_size"));
  }
  EXPECT_THAT(to_csv(result_of_lengths(Layout::ragged)), Not(HasSubstr("page_size")));
}

TEST(Json, PaddingHasAColumnWhereThereIsAny) {
  EXPECT_THAT(to_csv(result_of_lengths(Layout::bshd)), HasSubstr("pct_padding"));
  EXPECT_THAT(to_csv(result_of_lengths(Layout::ragged)), Not(HasSubstr("pct_padding")));
}

TEST(Json, AGemmOfNoFlopsIsNone) {
  auto json = nlohmann::ordered_json::parse(to_json(sample_result()));
  json["results"][0]["performance"]["gemm_ceiling"]["flops"] = 0;
  EXPECT_THROW(result_from_json(json.dump(), "memory"), FileError);
}

// A result with the fields that only GPUs report.
SweepResult gpu_result() {
  SweepResult result = sample_result();
  Record& record = result.records[1];
  record.from_naive = Distance{0.25, 0.0625};
  record.prepare_seconds = 0.125;
  record.wall.add("inputs", 0.5);
  record.wall.add("samples", 0.25);
  record.kernels = {{"ours::forward<64>", 2048, 128, 255, 1024, 98304, 16, 2}, {"theirs", 1}};
  record.energy = Energy{.joules = 140, .seconds = 0.25, .seconds_per_run = 0.0078125};
  record.counters = CounterReport{
      .state = {.status = CounterStatus::ok, .chip = "GH100", .cupti = 130001},
      .cache = CacheState::cold,
      .passes = 1,
      .run = {{"dram__bytes_read.sum", 1e6},
              {"dram__bytes_write.sum", 2e5},
              {"lts__t_bytes.sum", 3e6}},
      .run_and_eviction = {{"dram__bytes_read.sum", 9e6}, {"dram__bytes_write.sum", 3e5}},
      .eviction_bytes = 8000000,
      .launches = {{{"dram__bytes_read.sum", 7e5}}, {{"dram__bytes_read.sum", 3e5}}}};
  record.measurement->host_seconds = 2e-5;
  record.measurement->graph_nodes = 3;
  record.measurement->states = {{1980, 300, 0}, {1980, 310, 0},    {1500, 690, 0x4},
                                {1600, 700, 4}, {1700, 650, 0x20}, {1980, 640, 0x1}};
  return result;
}

TEST(Json, StatesLaunchesAndDistancesComeBack) {
  const SweepResult result = gpu_result();
  const SweepResult again = result_from_json(to_json(result), "memory");
  EXPECT_EQ(to_json(again), to_json(result));
  EXPECT_EQ(to_csv(again), to_csv(result));
  const Record& record = again.records[1];
  EXPECT_EQ(median_state(record, &DeviceState::sm_mhz), 1840);  // between 1700 and 1980
  EXPECT_EQ(throttled_share(record), 0.5);                      // idle does not count as throttled
  EXPECT_EQ(record.from_naive->max_abs, 0.25);
  EXPECT_EQ(record.prepare_seconds, 0.125);
  EXPECT_EQ(record.wall.phases(), result.records[1].wall.phases());
  EXPECT_EQ(record.kernels.at(0).local_bytes, 16);
  EXPECT_EQ(record.energy->joules_per_run(), 4.375);
  EXPECT_EQ(measured_bytes(*record.counters), 1300000) << "with what it left in the L2";
  EXPECT_EQ(record.counters->launches.size(), 2u);
  EXPECT_EQ(arithmetic_intensity(record), record.item.problem.flops() / 1300000);
  EXPECT_THAT(to_csv(again), HasSubstr(",1300000,"));
  EXPECT_THAT(to_csv(again), HasSubstr(",1000000,200000,300000,3000000,ok,4.375"));
  EXPECT_EQ(record.measurement->graph_nodes, 3);
  EXPECT_THAT(to_csv(again), HasSubstr(",1840,"));
}

// A result that was timed under load.
SweepResult loaded_result() {
  SweepResult result = sample_result();
  Measurement& measurement = *result.records[0].measurement;
  measurement.load = Load{2, 2, 3, 0.125, 1.5};
  measurement.core_times = {{1, 0}, {1, 0.5}, {1, 0}, {1, 0.5}, {1, 0}, {1, 0.5}};
  return result;
}

TEST(Json, LoadAndCoreTimesComeBackAndAreTold) {
  const SweepResult again = result_from_json(to_json(loaded_result()), "memory");
  EXPECT_EQ(to_json(again), to_json(loaded_result()));
  const std::string told =
      "others used 1.5 and the hypervisor 0.06 of 2 cores; 3 of 6 samples undisturbed";
  EXPECT_THAT(to_table(again), HasSubstr("load: " + told));
  EXPECT_THAT(to_markdown(again), HasSubstr("load: " + told + " |"));
  EXPECT_THAT(to_table(again),
              HasSubstr("warning: 1 of 5 rows were timed while others used the cores"));
}

TEST(Json, EverySampleHasCoreTimesThatAreNotNegative) {
  for (const auto& [was, is] : {std::pair{"\"waited_s\": [", "\"waited_s\": [0,"},
                                {"\"others_s\": 3.0", "\"others_s\": -3.0"},
                                {"\"seconds\": 2.0", "\"seconds\": 0"}}) {
    std::string text = to_json(loaded_result());
    const size_t at = text.find(was);
    ASSERT_NE(at, std::string::npos) << was;
    text.replace(at, std::string(was).size(), is);
    EXPECT_THROW(result_from_json(text, "memory"), FileError) << is;
  }
}

TEST(Json, CountersWithoutDetailsComeBack) {
  SweepResult result = gpu_result();
  CounterReport& report = *result.records[1].counters;
  report.run_and_eviction.clear();
  report.eviction_bytes = 0;
  report.launches.clear();
  report.cache = CacheState::warm;
  const SweepResult again = result_from_json(to_json(result), "memory");
  EXPECT_EQ(to_json(again), to_json(result));
  EXPECT_EQ(measured_bytes(*again.records[1].counters), 1200000);
  EXPECT_THAT(to_csv(again), HasSubstr(",1000000,200000,3000000,ok,"));
}

TEST(Json, EverySampleHasAState) {
  SweepResult result = gpu_result();
  result.records[1].measurement->states.pop_back();
  EXPECT_THROW(result_from_json(to_json(result), "memory"), FileError);
}

TEST(Json, CountersThatCouldNotBeReadKeepTheirReasonAndHaveNoFigures) {
  SweepResult result = gpu_result();
  result.records[1].counters = CounterReport{
      .state = {.status = CounterStatus::denied, .code = 35, .reason = "not allowed"}};
  const SweepResult again = result_from_json(to_json(result), "memory");
  EXPECT_EQ(to_json(again), to_json(result));
  const auto json = parse_strictly(to_json(result)).at("results").at(1).at("traffic");
  EXPECT_TRUE(json.at("bytes_measured").is_null());
  EXPECT_EQ(json.at("counters").at("status"), "denied");
  EXPECT_EQ(json.at("counters").at("code"), 35);
  EXPECT_EQ(again.records[1].counters->state.reason, "not allowed");
  EXPECT_THAT(to_csv(again), HasSubstr(",denied,"));
}

TEST(Json, ACountIsACount) {
  for (double wrong : {-1.0, 1e300}) {
    SweepResult result = gpu_result();
    result.records[1].counters->run[0].second = wrong;
    EXPECT_THROW(result_from_json(to_json(result), "memory"), FileError) << wrong;
  }
}

TEST(Json, WhatARecipeCostsComesBack) {
  SweepResult result = sample_result();
  Record& record = result.records[1];
  record.item.problem.dtype = Dtype::bf16;
  record.item.problem.quantize = Quantize::int8_qk;
  record.accumulator = "promoted:128";
  record.output_dtype = "bf16";
  record.verdict.recipe_cost = RecipeCost{.total = {5, 4.5, 5.5},
                                          .quant = {3, std::nullopt, std::nullopt},
                                          .kernel = {4, std::nullopt, std::nullopt},
                                          .rms_o = 10,
                                          .storing = 0.125,
                                          .heads = 8,
                                          .elements = 4096};
  const SweepResult again = result_from_json(to_json(result), "memory");
  EXPECT_EQ(to_json(again), to_json(result));
  EXPECT_EQ(to_csv(again), to_csv(result));
  EXPECT_EQ(again.records[1].item.problem.quantize, Quantize::int8_qk);
  EXPECT_EQ(again.records[1].verdict.recipe_cost->added(), 1);
  EXPECT_NE(to_csv(result).find("accumulator,output_dtype,rmse_total,rmse_total_low,"
                                "rmse_total_high,rmse_quant,rmse_kernel,rel_rmse_total,"
                                "rel_rmse_quant,rel_rmse_kernel"),
            std::string::npos);
  EXPECT_NE(to_csv(result).find("promoted:128,bf16,5,4.5,5.5,3,4,0.5,0.3,0.4"), std::string::npos);
  EXPECT_NE(repro_command(record).find("--quantize int8_qk"), std::string::npos);
}

TEST(Json, WhatWasNotAskedForIsAbsent) {
  SweepResult result = sample_result();
  for (const char* word : {"placement", "determinism", "runs agree", "bounded", "states",
                           "from_naive", "max_diff_vs_naive", "host_us", "prepare_", "counters",
                           "dram_", "kernels", "joules", "rmse", "accumulator", "output_dtype"}) {
    for (const std::string& text :
         {to_json(result), to_csv(result), to_markdown(result), to_table(result)}) {
      EXPECT_EQ(text.find(word), std::string::npos) << word;
    }
  }
  result.records[1].item.placement = Placement::strided;
  result.records[1].determinism = Determinism{Determinism::Kind::bounded, 9, 0.375};
  const SweepResult again = result_from_json(to_json(result), "memory");
  EXPECT_EQ(again.records[1].item.placement, Placement::strided);
  EXPECT_EQ(again.records[1].determinism->kind, Determinism::Kind::bounded);
  EXPECT_EQ(again.records[1].determinism->runs, 9);
  EXPECT_EQ(again.records[1].determinism->max_lambda, 0.375);
  EXPECT_FALSE(again.records[0].determinism);
  EXPECT_EQ(to_json(again), to_json(result));
  EXPECT_NE(to_csv(result).find("tflops_convention,placement,determinism\r\n"), std::string::npos);
  EXPECT_NE(to_csv(result).find(",strided,bounded\r\n"), std::string::npos);
  EXPECT_NE(to_table(result).find("bounded 0.38"), std::string::npos);
  EXPECT_NE(to_table(result).find("seed1  strided"), std::string::npos);
  EXPECT_NE(to_markdown(result).find("| bounded 0.38 |"), std::string::npos);
  EXPECT_NE(repro_command(result.records[1]).find("--placement strided"), std::string::npos);
}

TEST(Json, APluginsFileComesBackAndIsInTheReproCommand) {
  SweepResult result = sample_result();
  EXPECT_EQ(to_json(result).find("\"plugin\""), std::string::npos);
  result.records[1].provider = "plugin:mine";
  result.records[1].plugin = PluginFile{"plugin:mine", "/path/libx.so", "0123456789abcdef"};
  const SweepResult again = result_from_json(to_json(result), "memory");
  EXPECT_EQ(again.records[1].plugin, result.records[1].plugin);
  EXPECT_FALSE(again.records[0].plugin);
  EXPECT_EQ(to_json(again), to_json(result));
  EXPECT_NE(repro_command(again.records[1]).find(" --plugin mine=/path/libx.so "),
            std::string::npos);
}

TEST(Json, NonFiniteFiguresBecomeNullAndComeBackAsNaN) {
  SweepResult result = sample_result();
  TensorError& wrong = result.records[3].verdict.tensors[0];
  wrong.lambda = std::numeric_limits<double>::infinity();
  wrong.passed = false;
  const SweepResult again = result_from_json(to_json(result), "memory");
  EXPECT_TRUE(std::isnan(again.records[3].verdict.tensors[0].lambda));
  EXPECT_EQ(to_csv(again), to_csv(result));
}

// The error of reading the text.
std::string message(const std::string& text) {
  try {
    result_from_json(text, "file.json");
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

// The error of reading the sample after `pointer` was set to `value`.
std::string message_with(const std::string& pointer, const nlohmann::ordered_json& value) {
  auto json = nlohmann::ordered_json::parse(to_json(sample_result()));
  json[nlohmann::ordered_json::json_pointer(pointer)] = value;
  return message(json.dump());
}

TEST(Json, WhatIsNotAResultIsRefused) {
  EXPECT_THAT(message(""), HasSubstr("file.json: not a flashbench result file: not JSON"));
  EXPECT_THAT(message("{"), HasSubstr("not a flashbench result file"));
  EXPECT_THAT(message("[]"), HasSubstr("not a flashbench result file"));
  EXPECT_THAT(message("{}"), HasSubstr("/schema_version: missing"));
  EXPECT_THAT(message(R"({"schema_version": 99})"),
              HasSubstr("/schema_version: expected 1, found 99"));
}

TEST(Json, TextThatWouldExhaustTheReaderIsRefused) {
  EXPECT_THAT(message(std::string(1'000'000, '[')), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(message(R"({"schema_version": 1, "schema_version": 1})"),
              HasSubstr("/schema_version: the key appears twice"));
  EXPECT_THAT(message(R"({"a": 1e999})"), HasSubstr("/a: expected a number within the range"));
}

TEST(Json, WrongValuesAreRefusedWithTheirPlace) {
  const std::string first = "/results/0/", measured = first + "performance/measurement/";
  for (const auto& [pointer, value, said] :
       std::vector<std::tuple<std::string, nlohmann::ordered_json, std::string>>{
           {"/results/1/case/head_dim", 12, "/results/1: head_dim must be a multiple of 8"},
           {first + "case/q_len", 128.5, "/results/0: /q_len: expected an integer, found 128.5"},
           {first + "case/q_len", "128", "/q_len: expected an integer, found \"128\""},
           {first + "case/q_len", true, "/q_len: expected an integer"},
           {first + "case/q_len", uint64_t{1} << 63, "/q_len: expected an integer"},
           {first + "case/q_len", int64_t{1} << 62, "that memory could hold"},
           {first + "case/batch", int64_t{1} << 61, "that memory could hold"},
           {first + "case/seed", -1, "/seed: expected an integer of at least 0"},
           {first + "case/mask", "causal", "unknown name \"causal\""},
           {first + "key", "forward/x", "/key: expected the key of its case, forward/fp32"},
           {first + "status", "fine", "unknown name \"fine\""},
           {first + "provider", 1, "/provider: expected text, found 1"},
           {first + "correctness/sampled", 1, "/correctness/sampled: expected true or false"},
           {first + "correctness/tensors/0/worst", {1, 2}, "expected a list of 4"},
           {first + "correctness/tensors", 3, "/correctness/tensors: expected a list"},
           {first + "performance", 3, "/performance: expected an object"},
           {measured + "samples_s/2", -1, "samples_s: expected from"},
           {measured + "samples_s/2", 1e308, "samples_s: expected from"},
           {measured + "samples_s/2", 1e-320, "samples_s: expected from"},
           {first + "performance/gemm_ceiling/flops", 1e308, "flops: expected a figure that was"},
           {first + "performance/gemm_ceiling/flops", 0.0, "flops: expected a figure that was"},
           {"/ceilings/0/work", 1e-320, "work: expected a figure that was"},
           {measured + "samples_s/2", "fast", "samples_s: expected a number"},
           {measured + "warmup_runs", 1e10, "warmup_runs: expected an integer"},
           {measured + "samples_per_process", {4, 3}, "samples_per_process must add up"},
           {first + "memory/input_bytes", -1, "input_bytes: expected a number of bytes"},
           {first + "memory/input_bytes", INT64_MAX, "input_bytes: expected a number of bytes"},
           {first + "correctness/checked_fraction", 5, "checked_fraction: expected a share from 0"},
           {first + "correctness/checked_fraction", -1, "checked_fraction: expected a share from"},
           {first + "correctness/tensors/0/rel_rms_err", -1, "rel_rms_err: expected a number of"},
           {first + "correctness/tensors/0/lambda", -5, "lambda: expected a number of at least 0"},
           {first + "correctness/tensors/0/checked", -1, "checked: expected an integer of at lea"},
           {first + "traffic/bytes_requested", -5, "bytes_requested: expected a number of bytes"},
           {first + "prepare_s", -1, "prepare_s: expected a number of at least 0, found -1"},
           {first + "wall_s", {{"samples", -1}}, "samples: expected a number of at least 0"},
           {first + "from_naive", {{"max_abs", -1}, {"mean_abs", 0}}, "max_abs: expected a number"},
           {measured + "warmup_runs", -5, "warmup_runs: expected an integer of at least 0"},
           {first + "performance/measurement",
            nlohmann::ordered_json::parse(
                R"({"cache": "warm", "warmup_runs": 1, "stop_reason": "x", "samples_s": []})"),
            "/performance/measurement/samples_s: expected at least one sample, found []"},
           {"/results", nullptr, "/results: expected a list"},
           {"/devices", nlohmann::ordered_json::array(), "/devices: expected at least one"},
           {"/devices/0", 7, "/devices/0: expected an object"},
           {"/devices/0/threads", 1e300, "/devices/0/threads: expected an integer"},
           {"/meta/version", 7, "/meta/version: expected text"},
           {first + "plugin", {{"path", "x.so"}, {"xxh3", "0"}}, "/provider: expected plugin:NAME"},
           {"/meta/beside", "x", "/meta/beside: expected a list, found \"x\""},
           {"/meta/shards", 7, "/meta/shards: expected a list, found 7"},
           {"/meta/inputs", {1}, "/meta/inputs: expected an object, found [1]"},
           {"/meta/inputs", nullptr, "/meta/inputs: expected an object, found null"},
           {"/meta/inputs", {{"q.npy", 1}}, "/meta/inputs/q.npy: expected text, found 1"},
           {"/config/name", nullptr, "/config/name: expected text"},
       }) {
    EXPECT_THAT(message_with(pointer, value), HasSubstr(said)) << pointer;
  }
  auto json = nlohmann::ordered_json::parse(to_json(sample_result()));
  json["results"][0].erase("status");
  EXPECT_THAT(message(json.dump()), HasSubstr("/results/0: /status: missing"));
}

// A row without verified outputs has no time, whoever wrote the file.
TEST(Json, TimesWithoutVerifiedOutputsAreRefused) {
  const std::string first = "/results/0/", correctness = first + "correctness/";
  for (const auto& [pointer, value, said] :
       std::vector<std::tuple<std::string, nlohmann::ordered_json, std::string>>{
           {first + "status", "failed", "/results/0: /status: expected ok, as the row has times"},
           {first + "status", "crashed", "/status: expected ok, as the row has times, found"},
           {first + "reason", "it crashed",
            "/results/0: /reason: expected an empty text, as the row is ok, found \"it crashed\""},
           {first + "status", "unsupported", "/status: expected ok, as the row has times, found"},
           {correctness + "status", "failed", "/status: expected failed, as its correctness"},
           {correctness + "status", "not_checked",
            "/results/0: /correctness/status: expected passed, as the row is ok, found \"not_c"},
           {correctness + "tensors", nlohmann::ordered_json::array(),
            "/correctness/tensors: expected o among the tensors that passed, found []"},
           {correctness + "tensors/0/tensor", "dq", "expected o among the tensors that passed"},
           {"/results/2/correctness/tensors/1/tensor", "o", "expected dk among the tensors that"},
           {correctness + "checked_fraction", 0,
            "/checked_fraction: expected a share above 0, as correctness is passed, found 0"},
           {first + "determinism",
            {{"kind", "varies"}, {"runs", 2}, {"max_lambda", 9.0}},
            "/determinism/kind: expected bitwise or bounded, as the row is ok, found \"varies\""},
           {correctness + "tensors/1/passed", false,
            "/correctness/tensors/1/passed: expected true, as correctness is passed, found false"},
           {correctness + "tensors/0/nonfinite", 7,
            "/tensors/0/nonfinite: expected 0, as the tensor passed, found 7"},
           {correctness + "tensors/0/lambda", 100,
            "/tensors/0/lambda: expected at most 6, as the tensor passed, found 100"},
           {correctness + "tensors/0/lambda", nullptr, "/tensors/0/lambda: expected at most 6"},
       }) {
    EXPECT_THAT(message_with(pointer, value), HasSubstr(said)) << pointer;
  }
}

// A row of `verify` has no times, and one that is not ok no verified outputs.
TEST(Json, RowsWithoutTimesAreRead) {
  SweepResult result = sample_result();
  withdraw_times(result.records[0]);
  Record& failed = result.records[1];
  withdraw_times(failed);
  failed.status = Status::failed;
  failed.verdict.status = Verdict::Status::failed;  // of another run: its own tensors passed
  EXPECT_EQ(to_json(result_from_json(to_json(result), "memory")), to_json(result));
}

TEST(Json, TwoRecordsOfACaseAndProviderAreRefused) {
  SweepResult result = sample_result();
  result.records.push_back(result.records[1]);
  EXPECT_THAT(message(to_json(result)),
              HasSubstr("/results/5: the same case and provider as /results/1"));
}

// The whole result of a sweep over two cases by two providers.
SweepResult whole_sweep() {
  SweepResult result = sample_result();
  result.records.clear();
  std::vector<std::string> keys;
  for (int64_t batch : {2, 3}) {
    for (const char* provider : {"naive", "tiled"}) {
      result.records.push_back(sample_record(provider, 0.001));
      result.records.back().item.problem.batch = batch;
    }
    keys.push_back(result.records.back().item.key());
  }
  result.meta["sweep"] = {
      {"cases", keys.size()}, {"cases_hash", cases_hash(keys)}, {"providers", {"naive", "tiled"}}};
  return result;
}

TEST(Json, AResultWithoutARowOfItsSweepIsRefused) {
  SweepResult result = whole_sweep();
  EXPECT_EQ(message(to_json(result)), "accepted");
  const Record last = result.records.back();
  result.records.pop_back();
  EXPECT_THAT(message(to_json(result)),
              HasSubstr("/results: expected a row of tiled on " + last.item.key() +
                        ", as /meta/sweep has it, found none"));
  result.records.pop_back();
  EXPECT_THAT(
      message(to_json(result)),
      HasSubstr("/results: expected the rows of 2 cases, as /meta/sweep has them, found 1"));
}

TEST(Json, AResultOfOtherCasesThanItsSweepIsRefused) {
  SweepResult result = whole_sweep();
  for (Record& record : result.records) record.item.problem.batch += 1;
  EXPECT_THAT(message(to_json(result)),
              HasSubstr("/results: expected the cases of /meta/sweep, whose "));
}

TEST(Json, RowsOfAnotherResultAreBesideThoseOfASweep) {
  SweepResult result = whole_sweep();
  Record other = sample_record("tiled", 0.001);
  other.item.problem.batch = 1;
  other.source = "other.json";
  result.records.insert(result.records.begin(), other);
  EXPECT_EQ(message(to_json(result)), "accepted");
  result.records[4].source = "other.json";
  EXPECT_THAT(message(to_json(result)), HasSubstr("expected a row of tiled on"));
}

TEST(Json, NoRecordsAreAResult) {
  SweepResult result = sample_result();
  result.records.clear();
  result.ceilings.clear();
  EXPECT_EQ(to_json(result_from_json(to_json(result), "memory")), to_json(result));
}

TEST(Json, AMissingFileIsNamed) {
  try {
    read_result("no/such/result.json");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("no/such/result.json"), std::string::npos);
  }
}

// The error of reading a file.
std::string message_of_file(const std::filesystem::path& path) {
  try {
    read_result(path);
  } catch (const FileError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Json, ACsvIsNamedAsOneWithTheResultBesideIt) {
  const TemporaryFolder folder;
  const std::string csv = folder / "cpu.csv";
  std::ofstream(csv) << to_csv(sample_result());
  const std::string said = csv + ": expected a result file (JSON), found a CSV";
  EXPECT_EQ(message_of_file(csv), said);

  const std::string compressed = folder / "cpu.json.gz";
  std::ofstream(compressed) << "any";
  EXPECT_EQ(message_of_file(csv), said + "; did you mean " + compressed + "?");

  const std::string json = folder / "cpu.json";
  std::ofstream(json) << to_json(sample_result());
  EXPECT_EQ(message_of_file(csv), said + "; did you mean " + json + "?");
}

}  // namespace
}  // namespace flashbench
