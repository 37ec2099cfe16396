#include "cli/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cli/numbers.h"

namespace flashbench {
namespace {

class CommandLine : public testing::Test {
 protected:
  CommandLine() {
    declare_command_line(app_, invocation_);
    verbs_ = app_.get_subcommands({});
    for (CLI::App* verb : verbs_) verb->callback([] {});  // options are parsed, nothing is run
  }

  static std::vector<std::string> names_of(const CLI::Option& option) {
    std::vector<std::string> names = option.get_snames();
    names.insert(names.end(), option.get_lnames().begin(), option.get_lnames().end());
    if (names.empty()) names.push_back(option.get_name(/*positional=*/true));
    return names;
  }

  // The option's error for this value; empty if it accepts the value.
  std::string refusal(const CLI::App& verb, const CLI::Option& option, const std::string& value) {
    const std::string name = "--" + option.get_lnames().front();
    std::vector<std::string> reversed{value, name, verb.get_name()};       // the library's order
    if (!value.empty()) reversed = {name + "=" + value, verb.get_name()};  // "-inf" is no option
    try {
      app_.parse(reversed);
    } catch (const CLI::ValidationError& error) {
      return error.what();
    } catch (const CLI::ConversionError& error) {
      return error.what();
    } catch (const CLI::ParseError&) {
      return "";  // something else is missing
    }
    return "";
  }

  Invocation invocation_;
  CLI::App app_;
  std::vector<CLI::App*> verbs_;
};

// Later versions of the library refuse "-q" beside "--q" and beside a positional "q".
TEST_F(CommandLine, NoTwoNamesOfAVerbAreEqualWithoutTheirDashes) {
  ASSERT_GE(verbs_.size(), 9u);
  for (const CLI::App* verb : verbs_) {
    std::set<std::string> seen;
    for (const CLI::Option* option : verb->get_options()) {
      for (const std::string& name : names_of(*option)) {
        EXPECT_TRUE(seen.insert(name).second) << verb->get_name() << " " << name;
      }
    }
  }
}

TEST_F(CommandLine, NoNumberIsTakenThatIsNotFiniteAndWithinARange) {
  const std::set<std::string> numbers{"INT", "UINT", "FLOAT"};
  int tried = 0;
  for (const CLI::App* verb : verbs_) {
    for (const CLI::Option* option : verb->get_options()) {
      const std::string type = option->get_type_name();
      if (!numbers.contains(type.substr(0, type.find(':'))) || option->get_positional()) continue;
      for (const char* value : {"nan", "-nan", "inf", "-inf", "1e999", "-1e308", "0x10", "1_0",
                                " 1", "99999999999999999999", "1e308", "two"}) {
        EXPECT_THAT(refusal(*verb, *option, value), testing::HasSubstr(value))
            << verb->get_name() << " " << option->get_name();
      }
      ++tried;
    }
  }
  EXPECT_GT(tried, 30);
}

TEST_F(CommandLine, NoValueIsEmpty) {
  int tried = 0;
  for (const CLI::App* verb : verbs_) {
    for (const CLI::Option* option : verb->get_options()) {
      if (option->get_items_expected_max() == 0 || option->get_positional()) continue;
      EXPECT_NE(refusal(*verb, *option, ""), "") << verb->get_name() << " " << option->get_name();
      ++tried;
    }
  }
  EXPECT_GT(tried, 60);
}

TEST(FromTo, TakesDecimalNumbersOfTheRange) {
  const auto taken = [](const CLI::Validator& validator, std::string text) {
    return validator(text).empty() ? text : "refused";
  };
  EXPECT_EQ(taken(from_to(0, 10), "10"), "10");
  EXPECT_EQ(taken(from_to(0, 10), "11"), "refused");
  EXPECT_EQ(taken(from_to(0, 10), "2.5"), "refused");
  EXPECT_EQ(taken(from_to(0, 10), "010"), "10");  // not the octal 8
  EXPECT_EQ(taken(from_to(-1.0, 1.0), "-0.5"), "-0.5");
  EXPECT_EQ(taken(from_to(0.0, 1e6), "1e3"), "1000");
  EXPECT_EQ(taken(from_to(0.0, 1e6), "nan"), "refused");
  EXPECT_EQ(taken(from_to(0.0, 1e6), ""), "refused");
  EXPECT_EQ(taken(from_to(uint64_t{0}, UINT64_MAX), "18446744073709551615"),
            "18446744073709551615");
}

}  // namespace
}  // namespace flashbench
