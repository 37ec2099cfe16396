#include "cli/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "cli/errors.h"
#include "cli/verbs.h"

namespace flashbench {

namespace {

// Escapes text so that nothing in it is a request or an escape, and dashes can be copied.
std::string plain(const std::string& text) {
  std::string roff;
  for (const char c : text) {
    if (c == '\\') {
      roff += "\\e";
    } else if (c == '-') {
      roff += "\\-";
    } else {
      roff += c == '\n' ? ' ' : c;
    }
  }
  const bool like_a_request = roff.starts_with('.') || roff.starts_with('\'');
  return (like_a_request ? "\\&" : "") + roff;
}

std::string bold(const std::string& text) {
  return "\\fB" + plain(text) + "\\fR";
}

std::string italic(const std::string& text) {
  return "\\fI" + plain(text) + "\\fR";
}

// A paragraph with a hanging tag.
std::string item(const std::string& tag, const std::string& text) {
  return fmt::format(".TP\n{}\n{}\n", tag, plain(text));
}

std::vector<std::string> sorted_names(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options) names.push_back(option->get_name());
  std::sort(names.begin(), names.end());
  return names;
}

std::string tag_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : names_of(option)) names.push_back(bold(name));
  if (names.empty()) return italic(option.get_name(/*positional=*/true));
  std::string tag = fmt::format("{}", fmt::join(names, ", "));
  if (option.get_items_expected_max() > 0) {
    const std::string type = option.get_type_name();  // "INT:from 1 to 100"
    tag += " " + italic(type.substr(0, type.find(':')));
  }
  return tag;
}

// The description, and the library's further facts about the option.
std::string text_of(const CLI::Option& option) {
  std::string text = option.get_description() + ".";
  if (option.get_required()) text += " Required.";
  const std::string type = option.get_type_name();
  if (const size_t colon = type.find(':'); colon != std::string::npos) {
    const std::string values = type.substr(colon + 1);  // with spaces, so that lines can break
    text += fmt::format(" Values: {}.", CLI::detail::find_and_replace(values, ",", ", "));
  }
  if (!option.get_default_str().empty()) {
    text += fmt::format(" Default: {}.", option.get_default_str());
  }
  if (const auto needed = sorted_names(option.get_needs()); !needed.empty()) {
    text += fmt::format(" Needs {}.", fmt::join(needed, ", "));
  }
  if (const auto excluded = sorted_names(option.get_excludes()); !excluded.empty()) {
    text += fmt::format(" Not with {}.", fmt::join(excluded, ", "));
  }
  return text;
}

// All but --help, which every verb has.
std::string options_of(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (option != app.get_help_ptr()) text += item(tag_of(*option), text_of(*option));
  }
  return text;
}

std::string usage_of(const CLI::App& verb) {
  std::string usage = bold("flashbench") + " " + bold(verb.get_name()) + " [options]";
  for (const CLI::Option* option : verb.get_options()) {
    if (!option->get_positional()) continue;
    usage += " " + italic(option->get_name(/*positional=*/true));
    if (option->get_items_expected_max() > 1) usage += " ...";
  }
  return usage;
}

std::string synopsis(const CLI::App& app) {
  std::string text;
  for (const CLI::App* verb : shown_verbs(app)) {
    text += (text.empty() ? "" : ".br\n") + usage_of(*verb) + "\n";
  }
  return text;
}

std::string commands(const CLI::App& app) {
  std::string text;
  for (const CLI::App* verb : shown_verbs(app)) {
    text += fmt::format(".SS {}\n{}\n{}", bold(verb->get_name()),
                        plain(verb->get_description() + "."), options_of(*verb));
  }
  return text;
}

std::string exit_status() {
  std::string text;
  for (const auto& [code, meaning] : exit_code_meanings()) text += item(bold(code), meaning + ".");
  return text;
}

std::string files() {
  return item(italic("PREFIX/share/flashbench/configs"),
              "The configs that ship, which --config takes by name, and sweep.schema.json, the "
              "schema that every config follows. PREFIX is where flashbench is installed, as "
              "PREFIX/bin/flashbench.") +
         item(italic("results/NAME"),
              "A sweep of the config NAME writes NAME.json, NAME.csv and NAME.md here, unless "
              "--out names another folder; NAME.journal while it runs; baselines/ for "
              "--save-baseline.");
}

}  // namespace

std::string manual_page(const CLI::App& app, const std::string& version) {
  return fmt::format(R"(.TH FLASHBENCH 1 "" "flashbench {}" "User Commands"
.SH NAME
flashbench \- benchmark and verify attention implementations
.SH SYNOPSIS
{}.SH DESCRIPTION
{}
A row of a result has a time only if its outputs, and those of its last timed run, agree with an fp64
reference.
Every command explains its options with {}.
.SH OPTIONS
{}.SH COMMANDS
{}.SH EXIT STATUS
{}.SH FILES
{}.SH SEE ALSO
.BR bash (1),
.BR zsh (1),
.BR fish (1),
for whose completions see {}.
)",
                     plain(version), synopsis(app), plain(app.get_description()), bold("--help"),
                     options_of(app), commands(app), exit_status(), files(),
                     bold("flashbench completion"));
}

}  // namespace flashbench
