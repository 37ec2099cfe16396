#include "report/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/error.h"
#include "report/csv.h"
#include "report/markdown.h"
#include "report/table.h"
#include "sample_result.h"

namespace flashbench {
namespace {

TEST(Json, EveryReportOfTheFileIsTheSameByteForByte) {
  const SweepResult result = sample_result();
  const SweepResult again = result_from_json(to_json(result), "memory");
  EXPECT_EQ(to_json(again), to_json(result));
  EXPECT_EQ(to_csv(again), to_csv(result));
  EXPECT_EQ(to_markdown(again), to_markdown(result));
  EXPECT_EQ(to_table(again), to_table(result));
}

TEST(Json, NonFiniteFiguresBecomeNullAndComeBackAsNaN) {
  SweepResult result = sample_result();
  result.records[0].verdict.tensors[0].lambda = std::numeric_limits<double>::infinity();
  const SweepResult again = result_from_json(to_json(result), "memory");
  EXPECT_TRUE(std::isnan(again.records[0].verdict.tensors[0].lambda));
  EXPECT_EQ(to_csv(again), to_csv(result));
}

TEST(Json, WhatIsNotAResultIsRefusedWithItsPlace) {
  const auto message = [](std::string text) {
    try {
      result_from_json(text, "file.json");
    } catch (const FileError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(message("{").find("file.json: not a flashbench result file"), std::string::npos);
  EXPECT_NE(message("[]").find("not a flashbench result file"), std::string::npos);
  EXPECT_NE(message(R"({"schema_version": 99})").find("/schema_version: expected 1, found 99"),
            std::string::npos);

  auto json = nlohmann::ordered_json::parse(to_json(sample_result()));
  json["results"][1]["case"]["head_dim"] = 12;
  EXPECT_NE(message(json.dump()).find("/results/1: head_dim must be a multiple of 8"),
            std::string::npos);
  json = nlohmann::ordered_json::parse(to_json(sample_result()));
  json["results"][0]["performance"]["measurement"]["samples_s"][2] = -1;
  EXPECT_NE(message(json.dump()).find("/results/0: samples_s must be positive"), std::string::npos);
  json = nlohmann::ordered_json::parse(to_json(sample_result()));
  json["results"][0]["performance"]["measurement"]["samples_per_process"] = {4, 3};
  EXPECT_NE(message(json.dump()).find("/results/0: samples_per_process must add up"),
            std::string::npos);
  json = nlohmann::ordered_json::parse(to_json(sample_result()));
  json["results"][0].erase("status");
  EXPECT_NE(message(json.dump()).find("/results/0"), std::string::npos);
}

TEST(Json, AMissingFileIsNamed) {
  try {
    read_result("no/such/result.json");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_NE(std::string(error.what()).find("no/such/result.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace flashbench
