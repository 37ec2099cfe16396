#include "cli/errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "attention/error.h"
#include "cli/standard_streams.h"
#include "cli/verbs.h"
#include "compare/comparable.h"
#include "device/device.h"
#include "plan/config.h"
#include "plan/nearest.h"
#include "worker/interrupt.h"

namespace flashbench {

namespace {

int explain(int code, const std::exception& error) {
  print_error(fmt::format("flashbench: {}\n", error.what()));
  return code;
}

std::vector<std::string> names_of_verbs(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : shown_verbs(app)) names.push_back(verb->get_name());
  return names;
}

// Letters follow the dashes: "-5" is a number.
bool looks_like_option(const std::string& argument) {
  const size_t letter = argument.find_first_not_of('-');
  return letter != 0 && letter != std::string::npos &&
         std::isalpha(static_cast<unsigned char>(argument[letter])) != 0;
}

// The sentence about an option that the verb lacks; empty if there is none among the arguments.
std::string unknown_option(const CLI::App& app, const std::vector<std::string>& unknown) {
  const auto found = std::find_if(unknown.begin(), unknown.end(), looks_like_option);
  if (found == unknown.end() || app.get_subcommands().empty()) return "";
  const CLI::App& verb = *app.get_subcommands().front();
  std::vector<std::string> known;  // without dashes, which would count as common letters
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back(name);
  }
  const std::string name = found->substr(0, found->find('='));
  const auto near = nearest(name.substr(name.find_first_not_of('-')), known);
  const std::string hint =
      near.empty() ? "" : fmt::format("; did you mean --{}?", fmt::join(near, " or --"));
  return fmt::format("{} has no option {}{}", verb.get_name(), name, hint);
}

// The line on how the verb is called.
std::string usage(const CLI::App& app, const CLI::App& verb) {
  const std::string text =
      CLI::Formatter().make_usage(&verb, app.get_name() + " " + verb.get_name());
  const size_t begin = text.find_first_not_of('\n'), end = text.find_last_not_of('\n');
  return text.substr(begin, end + 1 - begin);
}

// Which argument the verb lacks, what the verb does, and how it is called; empty if it lacks none.
std::string missing_argument(const CLI::App& app) {
  if (app.get_subcommands().empty()) return "";
  const CLI::App& verb = *app.get_subcommands().front();
  for (const CLI::Option* option : verb.get_options()) {
    if (!option->get_positional() || !option->get_required() || option->count() > 0) continue;
    return fmt::format("{}: {} is missing\n{}\n{}\nRun with --help for more information.",
                       verb.get_name(), option->get_name(/*positional=*/true),
                       verb.get_description(), usage(app, verb));
  }
  return "";
}

// Prints the library's output: help and the version, or the error in the arguments.
int explain(const CLI::ParseError& error, const CLI::App& app) {
  // A request for help does not excuse unknown arguments.
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  if (!unknown.empty() && app.get_subcommands().empty()) {
    const std::string hint = did_you_mean(unknown.front(), names_of_verbs(app));
    return explain(exit_codes::kUsage, BadInput(fmt::format("expected a command ({}), got \"{}\"{}",
                                                            fmt::join(names_of_verbs(app), ", "),
                                                            unknown.front(), hint)));
  }
  // A misspelt option comes first: what seems to be missing may be what it meant.
  const std::string misspelt = unknown_option(app, unknown);
  if (!misspelt.empty()) return explain(exit_codes::kUsage, BadInput(misspelt));
  if (!unknown.empty() && error.get_exit_code() == 0) {
    return explain(exit_codes::kUsage, CLI::ExtrasError(unknown));
  }
  if (error.get_name() == "RequiredError") {
    const std::string missing = missing_argument(app);
    if (!missing.empty()) return explain(exit_codes::kUsage, BadInput(missing));
  }
  std::ostringstream out, err;
  const int code = app.exit(error, out, err);
  print_error(err.str());
  if (std::fputs(out.str().c_str(), stdout) < 0) return lost_output(errno);
  return code == 0 ? exit_codes::kOk : exit_codes::kUsage;
}

}  // namespace

std::string exit_code_help() {
  std::vector<std::string> texts;
  for (const auto& [code, meaning] : exit_code_meanings()) texts.push_back(code + " " + meaning);
  return fmt::format("Exit codes: {}.", fmt::join(texts, "; "));
}

std::vector<std::pair<std::string, std::string>> exit_code_meanings() {
  using namespace exit_codes;
  const auto code = [](int number) { return std::to_string(number); };
  return {{code(kOk), "ok"},
          {code(kRegression), "a row is slower or newly wrong (with --fail-on-regression)"},
          {code(kUsage), "usage or config error"},
          {code(kVerificationFailed), "verification failed"},
          {code(kCaseFailed),
           "a case crashed, hung, ran out of memory, ended in an error or was left out"},
          {code(kBaseline), "the baseline is unusable or not comparable"},
          {code(kNoDevice), "no usable device"},
          {code(kFile), "a file cannot be read or written"},
          {code(kSignal + SIGINT) + " or " + code(kSignal + SIGTERM),
           "interrupted by SIGINT or SIGTERM"}};
}

int run_and_explain(const std::function<int()>& work, const CLI::App& app) {
  try {
    try {
      return work();
    } catch (const CLI::ParseError& error) {
      return explain(error, app);
    }
  } catch (const ConfigError& error) {
    return explain(exit_codes::kUsage, error);
  } catch (const BadInput& error) {
    return explain(exit_codes::kUsage, error);
  } catch (const BaselineError& error) {
    return explain(exit_codes::kBaseline, error);
  } catch (const NoDevice& error) {
    // An interrupt also ends a worker that opens a device.
    if (const int code = interrupt_exit_code()) return explain(code, BadInput("interrupted"));
    return explain(exit_codes::kNoDevice, error);
  } catch (const FileError& error) {
    return explain(exit_codes::kFile, error);
  } catch (const std::filesystem::filesystem_error& error) {
    return explain(exit_codes::kFile, error);
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0) return lost_output(error.code().value());
    return explain(exit_codes::kCaseFailed, error);
  } catch (const std::exception& error) {
    return explain(exit_codes::kCaseFailed, error);
  }
}

}  // namespace flashbench
