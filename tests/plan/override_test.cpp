// --set.
#include "plan/override.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flashbench {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

// The document after this override, or the pointer and message of the error.
std::string after(const std::string& document, const std::string& text) {
  Json json = Json::parse(document);
  const auto issue = apply_override(json, parse_override(text));
  return issue ? issue->pointer + " " + issue->message : json.dump();
}

std::string override_error(const std::string& text) {
  try {
    parse_override(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Override, ValuesAreJsonOrElseText) {
  EXPECT_EQ(parse_override("/a=2").value, 2);
  EXPECT_EQ(parse_override("/a=2.5").value, 2.5);
  EXPECT_EQ(parse_override("/a=true").value, true);
  EXPECT_EQ(parse_override("/a=[1,\"x\"]").value, Json::parse("[1,\"x\"]"));
  EXPECT_EQ(parse_override("/a=\"2\"").value, "2");
  EXPECT_EQ(parse_override("/a=cuda:1").value, "cuda:1");
  EXPECT_EQ(parse_override("/a=x=y").value, "x=y");
  EXPECT_EQ(parse_override("/a=").value, "");
  EXPECT_EQ(parse_override("/a/b=1").pointer, "/a/b");
}

TEST(Override, MalformedArgumentsAreRefused) {
  EXPECT_THAT(override_error("/a"), HasSubstr("expected /pointer=value, got \"/a\""));
  EXPECT_THAT(override_error("a=1"), HasSubstr("expected a JSON pointer before '='"));
  EXPECT_THAT(override_error("=1"), HasSubstr("expected a JSON pointer before '='"));
  EXPECT_THAT(override_error("/a~2=1"), HasSubstr("expected a JSON pointer before '='"));
  EXPECT_THAT(override_error("/a=[1,"), HasSubstr("not JSON"));
  EXPECT_THAT(override_error("/a={\"b\":1,\"b\":2}"), HasSubstr("appears twice"));
  std::string deep;
  for (int i = 0; i < 65; ++i) deep += "/a";
  EXPECT_THAT(override_error(deep + "=1"), HasSubstr("at most 64 parts"));
}

TEST(Override, CreatesAndReplaces) {
  EXPECT_EQ(after(R"({"a":1,"b":2})", "/a=3"), R"({"a":3,"b":2})");
  EXPECT_EQ(after(R"({"a":1})", "/b=3"), R"({"a":1,"b":3})");
  EXPECT_EQ(after(R"({"a":1})", "/b/c/d=3"), R"({"a":1,"b":{"c":{"d":3}}})");
  EXPECT_EQ(after(R"({"a":[1,2]})", "/a/1=3"), R"({"a":[1,3]})");
  EXPECT_EQ(after(R"({"a":[1,2]})", "/a/2=3"), R"({"a":[1,2,3]})");
  EXPECT_EQ(after(R"({"a":[1,2]})", "/a/-=3"), R"({"a":[1,2,3]})");
  EXPECT_EQ(after(R"({"a":[1,2]})", "/a=3"), R"({"a":3})");
  EXPECT_EQ(after(R"({"a":[]})", "/a/-/b=3"), R"({"a":[{"b":3}]})");
  EXPECT_EQ(after(R"({"x/y":1})", "/x~1y=3"), R"({"x/y":3})");
}

TEST(Override, WhatCannotBeReachedIsAnIssue) {
  EXPECT_THAT(after(R"({"a":[1,2]})", "/a/3=0"),
              HasSubstr("/a/3 --set: expected an index from 0 to 2"));
  EXPECT_THAT(after(R"({"a":[1,2]})", "/a/01=0"), HasSubstr("/a/01 --set: expected an index"));
  EXPECT_THAT(after(R"({"a":[1,2]})", "/a/x=0"), HasSubstr("/a/x --set: expected an index"));
  EXPECT_THAT(after(R"({"a":[1,2]})", "/a/99999999999999999999=0"), HasSubstr("expected an index"));
  EXPECT_THAT(after(R"({"a":"text"})", "/a/b=0"), HasSubstr("/a --set: \"text\" holds no \"b\""));
}

}  // namespace
}  // namespace flashbench
