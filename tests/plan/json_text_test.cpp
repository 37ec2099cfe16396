// Valid JSON, and text that is refused without harm.
#include "plan/json_text.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flashbench {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using Json = nlohmann::ordered_json;

std::string only_message(const std::string& text, const std::string& pointer = "") {
  const JsonText result = parse_json(text);
  EXPECT_FALSE(result.value.has_value());
  EXPECT_THAT(result.issues, SizeIs(1));
  if (result.issues.empty()) return "";
  EXPECT_EQ(result.issues[0].pointer, pointer);
  return result.issues[0].message;
}

TEST(JsonText, ReadsWhatTheLibraryReads) {
  for (const char* text :
       {"null", "true", "-3", "18446744073709551615", "2.5e-3", "\"\\u00e4\\ud83d\\ude00\"", "[]",
        "{}", "[1,[2,[]],{\"a\":{}}]", R"({"b":1,"a":[{"c":null},2],"d":{"e":"f"}})",
        "\xef\xbb\xbf{\"a\": 1}"}) {
    const JsonText result = parse_json(text);
    ASSERT_TRUE(result.value.has_value()) << text;
    EXPECT_THAT(result.issues, SizeIs(0));
    EXPECT_EQ(result.value->dump(), Json::parse(text).dump());
  }
}

TEST(JsonText, SyntaxErrorsHaveLineAndColumn) {
  EXPECT_THAT(only_message("{\n  \"a\": 1\n  \"b\": 2\n}"),
              HasSubstr("not JSON: line 3, column 5"));
  EXPECT_THAT(only_message(""), HasSubstr("line 1, column 1"));
  EXPECT_THAT(only_message("{\"a\": 1} x"), HasSubstr("line 1, column 10"));
  EXPECT_THAT(only_message("{\"a\": nan}"), HasSubstr("line 1, column 8"));
  EXPECT_THAT(only_message("[\"\xff\"]"), HasSubstr("UTF-8"));
}

// To the library it is the end of the text, whatever follows.
TEST(JsonText, NulBytesAreRefused) {
  using namespace std::string_literals;
  EXPECT_THAT(only_message("{\"a\": 1}\n\0junk"s), HasSubstr("line 2: expected text, found a NUL"));
  EXPECT_THAT(only_message("{\"a\0\": 1}"s), HasSubstr("line 1"));
}

TEST(JsonText, UsualSlipsAreNamed) {
  EXPECT_THAT(only_message("{\"a\": [1, 2,\n ]}"), HasSubstr("a comma must not precede ']'"));
  EXPECT_THAT(only_message("{\"a\": 1 , }"), HasSubstr("a comma must not precede '}'"));
  EXPECT_THAT(only_message("{ // why\n \"a\": 1}"), HasSubstr("JSON has no comments"));
  EXPECT_THAT(only_message("{\"a\" 1}"), testing::Not(HasSubstr("comma must")));
  EXPECT_THAT(only_message("]"), testing::Not(HasSubstr("comma must")));
}

TEST(JsonText, DuplicateKeysAreAllReported) {
  const JsonText result =
      parse_json(R"({"a": {"x": 1, "x": 2}, "b": [0, {"y": 1, "y": [3]}], "a": 4})");
  ASSERT_THAT(result.issues, SizeIs(3));
  EXPECT_EQ(result.issues[0].pointer, "/a/x");
  EXPECT_EQ(result.issues[1].pointer, "/b/1/y");
  EXPECT_EQ(result.issues[2].pointer, "/a");
  EXPECT_EQ(result.value->dump(), R"({"a":4,"b":[0,{"y":[3]}]})");
}

TEST(JsonText, NumbersThatOverflowAreRefused) {
  EXPECT_THAT(only_message(R"({"a": [1, {"b": 1e999}]})", "/a/1/b"), HasSubstr("1e999"));
  EXPECT_THAT(only_message("[1, [2, 3], -1e400]", "/2"), HasSubstr("-1e400"));
}

TEST(JsonText, NestingIsBounded) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth)).value.has_value());
  const JsonText result = parse_json(nested(kMaxJsonDepth + 1));
  EXPECT_FALSE(result.value.has_value());
  ASSERT_THAT(result.issues, SizeIs(1));
  EXPECT_THAT(result.issues[0].message, HasSubstr("nested deeper than 64 levels"));
  EXPECT_FALSE(parse_json(std::string(1'000'000, '[')).value.has_value());
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += "{\"\":";
  EXPECT_FALSE(parse_json(objects).value.has_value());
}

TEST(JsonText, SizesAreBounded) {
  EXPECT_THAT(only_message(std::string(kMaxJsonBytes + 1, ' ')), HasSubstr("larger than 1048576"));
  const std::string longest(kMaxJsonText, 'x');
  EXPECT_TRUE(parse_json(fmt::format(R"({{"{0}": "{0}"}})", longest)).value.has_value());
  EXPECT_THAT(only_message(fmt::format(R"({{"a": "{}y"}})", longest), "/a"), HasSubstr("got 2001"));
  EXPECT_THAT(only_message(fmt::format(R"({{"{}y": 1}})", longest)), HasSubstr("one of 2001"));
  EXPECT_THAT(only_message("[\"" + std::string(900'000, 'x')).size(), testing::Lt(500u));
}

TEST(JsonText, LimitsCanBeOthers) {
  const JsonLimits limits{.bytes = 20, .depth = 2, .text = 4};
  EXPECT_TRUE(parse_json(R"([["abcd"]])", limits).value.has_value());
  EXPECT_FALSE(parse_json(R"([["abcde"]])", limits).value.has_value());
  EXPECT_FALSE(parse_json("[[[]]]", limits).value.has_value());
  EXPECT_FALSE(parse_json(std::string(21, ' '), limits).value.has_value());
}

TEST(JsonText, ValuesAreShownShort) {
  EXPECT_EQ(shown(Json::parse(R"({"a": [1, "x"]})")), R"({"a":[1,"x"]})");
  EXPECT_EQ(shown(std::string(100, 'x')), fmt::format("\"{:x>59}...", ""));
  std::string umlauts;
  for (int i = 0; i < 50; ++i) umlauts += "\xc3\xa4";
  const std::string cut = shown(umlauts);
  EXPECT_EQ(cut, fmt::format("\"{}...", umlauts.substr(0, 58)));  // between characters
}

TEST(JsonText, ControlCharactersBecomeQuestionMarks) {
  EXPECT_EQ(printable("a\x1b[2J\x07\x7f\r"), "a?[2J???");
  EXPECT_EQ(printable("a\n\tb"), "a??b");
  EXPECT_EQ(printable("a\n\tb\x1b", /*lines=*/true), "a\n\tb?");
  EXPECT_EQ(printable("\xc2\x80-\xc2\x9b"
                      "31m\xc2\x9f"),
            "?-?31m?");                                                              // C1
  EXPECT_EQ(printable("\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9"), "????");  // bidi
  const std::string kept = "\xc2\xa0\xc3\xa4\xe2\x80\xa6\xe2\x82\xac\xf0\x9f\x98\x80";
  EXPECT_EQ(printable(kept), kept);
  EXPECT_EQ(printable("\xc2"), "\xc2");  // cut off
}

TEST(JsonText, AllTextsOfADocumentBecomePrintable) {
  const Json document = Json::parse(
      R"({"a\u001b": ["b\u0007", {"c": "\u009b\n"}], "reason": "d\n\u001b", "a\u0007": 1, "e": 2})");
  EXPECT_EQ(printable_texts(document),
            Json::parse(R"({"a?": ["b?", {"c": "??"}], "reason": "d\n?", "e": 2})"));
}

TEST(JsonText, PointersEscapeAndUnescape) {
  EXPECT_EQ(pointer_child("/a", "b/c~d"), "/a/b~1c~0d");
  EXPECT_THAT(pointer_tokens("/a/b~1c~0d//0").value(), ElementsAre("a", "b/c~d", "", "0"));
  for (const char* bad : {"", "a", "/a~", "/a~2"}) {
    EXPECT_FALSE(pointer_tokens(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace flashbench
