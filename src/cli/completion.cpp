#include "cli/completion.h"

#include <fmt/format.h>

#include <vector>

#include "attention/error.h"
#include "cli/verbs.h"

namespace flashbench {

namespace {

enum class Takes { nothing, text, file, folder, choice };

struct OptionWords {
  std::vector<std::string> names;  // "-c", "--config"; none for a positional argument
  std::string label;               // its name if it has no dashes
  std::string description;
  Takes takes = Takes::nothing;
  std::vector<std::string> choices;
  bool repeats = false;

  bool positional() const { return names.empty(); }
};

struct CommandWords {
  std::string name;  // empty for the program itself
  std::string description;
  std::vector<OptionWords> options;
};

// "TEXT:{bash,zsh,fish}" -> bash, zsh, fish.
std::vector<std::string> choices_in(const std::string& type_name) {
  const size_t open = type_name.find('{'), close = type_name.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type_name.substr(open + 1, close - open - 1), ',');
}

OptionWords words_of(const CLI::Option& option) {
  OptionWords words;
  words.names = names_of(option);
  words.label = option.get_single_name();
  words.description = option.get_description();
  words.repeats = option.get_items_expected_max() > 1;
  if (option.get_items_expected_max() == 0) return words;

  const std::string type_name = option.get_type_name();
  words.choices = choices_in(type_name);
  words.takes = !words.choices.empty()                        ? Takes::choice
                : type_name.find("FILE") != std::string::npos ? Takes::file
                : type_name.find("DIR") != std::string::npos  ? Takes::folder
                                                              : Takes::text;
  return words;
}

CommandWords words_of(const CLI::App& app, const std::string& name) {
  CommandWords words{name, app.get_description(), {}};
  for (const CLI::Option* option : app.get_options()) words.options.push_back(words_of(*option));
  return words;
}

// The program's words first, then those of each verb.
std::vector<CommandWords> commands_of(const CLI::App& app) {
  std::vector<CommandWords> commands{words_of(app, "")};
  for (const CLI::App* verb : shown_verbs(app)) {
    commands.push_back(words_of(*verb, verb->get_name()));
  }
  return commands;
}

std::vector<std::string> verbs(const std::vector<CommandWords>& commands) {
  std::vector<std::string> names;
  for (const CommandWords& command : commands) {
    if (!command.name.empty()) names.push_back(command.name);
  }
  return names;
}

// `text` in single quotes; `quote` replaces a quote in it.
std::string quoted(std::string text, const std::string& quote) {
  return "'" + CLI::detail::find_and_replace(std::move(text), "'", quote) + "'";
}

// ---- bash

std::string bash_values(const OptionWords& option) {
  switch (option.takes) {
    case Takes::file:
      return "_flashbench_paths -f";
    case Takes::folder:
      return "_flashbench_paths -d";
    case Takes::choice:
      return fmt::format("_flashbench_reply -W '{}'", fmt::join(option.choices, " "));
    case Takes::text:
    case Takes::nothing:
      break;
  }
  return ":";
}

std::string bash_script(const std::vector<CommandWords>& commands) {
  std::string option_values, arguments, words;
  for (const CommandWords& command : commands) {
    std::vector<std::string> names =
        command.name.empty() ? verbs(commands) : std::vector<std::string>{};
    for (const OptionWords& option : command.options) {
      names.insert(names.end(), option.names.begin(), option.names.end());
      if (option.positional()) {
        arguments += fmt::format("      {}) {}; return ;;\n", command.name, bash_values(option));
      } else if (option.takes != Takes::nothing) {
        std::vector<std::string> patterns;
        for (const std::string& name : option.names) patterns.push_back(command.name + ":" + name);
        option_values +=
            fmt::format("    {}) {}; return ;;\n", fmt::join(patterns, "|"), bash_values(option));
      }
    }
    words += fmt::format("    '{}') _flashbench_reply -W '{}' ;;\n", command.name,
                         fmt::join(names, " "));
  }
  return fmt::format(
      R"(# Completion of flashbench in bash. Try it: source <(flashbench completion bash)

_flashbench_reply() {{
  mapfile -t COMPREPLY < <(compgen "$@" -- "$current")
}}

_flashbench_paths() {{
  _flashbench_reply "$1"
  compopt -o filenames 2>/dev/null
}}

_flashbench() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command= word
  COMPREPLY=()
  # bash takes --option=value apart at the =
  if [[ $current == = ]]; then
    current=
  elif [[ $previous == = ]]; then
    previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in
      {}) command=$word; break ;;
    esac
  done
  case $command:$previous in
{}  esac
  if [[ $current != -* ]]; then
    case $command in
{}    esac
  fi
  case $command in
{}  esac
}}

complete -F _flashbench flashbench
)",
      fmt::join(verbs(commands), "|"), option_values, arguments, words);
}

// ---- zsh

std::string zsh_values(const OptionWords& option) {
  switch (option.takes) {
    case Takes::file:
      return "_files";
    case Takes::folder:
      return "_files -/";
    case Takes::choice:
      return fmt::format("({})", fmt::join(option.choices, " "));
    case Takes::text:
    case Takes::nothing:
      break;
  }
  return " ";
}

// One argument of _arguments: '*--name[description]:label:values'.
std::string zsh_argument(const OptionWords& option, const std::string& name) {
  std::string description = option.description;
  for (const char* special : {"\\", "[", "]", ":"}) {
    description = CLI::detail::find_and_replace(description, special, std::string("\\") + special);
  }
  std::string text;
  if (option.positional()) {
    text = fmt::format(":{}:{}", description, zsh_values(option));
  } else {
    text = fmt::format("{}{}[{}]", option.repeats ? "*" : "", name, description);
    if (option.takes != Takes::nothing)
      text += fmt::format(":{}:{}", option.label, zsh_values(option));
  }
  return " \\\n        " + quoted(text, R"('\'')");
}

std::string zsh_arguments(const CommandWords& command) {
  std::string text;
  for (const OptionWords& option : command.options) {
    if (option.positional()) text += zsh_argument(option, "");
    for (const std::string& name : option.names) text += zsh_argument(option, name);
  }
  return text;
}

std::string zsh_script(const std::vector<CommandWords>& commands) {
  std::string described, cases;
  for (const CommandWords& command : commands) {
    if (command.name.empty()) continue;
    described +=
        fmt::format("    {}\n", quoted(command.name + ":" + command.description, R"('\'')"));
    cases += fmt::format("    {})\n      _arguments{} ;;\n", command.name, zsh_arguments(command));
  }
  return fmt::format(R"(#compdef flashbench
# Completion of flashbench in zsh. Try it: source <(flashbench completion zsh)

_flashbench() {{
  local context state state_descr line
  typeset -A opt_args
  local -a verbs=(
{}  )
  _arguments -C{} \
        '1:command:->verb' '*::argument:->arguments'
  case $state in
    verb) _describe command verbs; return ;;
    arguments) ;;
    *) return ;;
  esac
  case $line[1] in
{}  esac
}}

if [[ $funcstack[1] == _flashbench ]]; then
  _flashbench "$@"
else
  compdef _flashbench flashbench
fi
)",
                     described, zsh_arguments(commands.front()), cases);
}

// ---- fish

std::string fish_values(const OptionWords& option) {
  switch (option.takes) {
    case Takes::file:
      return " -r -F";
    case Takes::folder:
      return " -x -a '(__fish_complete_directories)'";
    case Takes::choice:
      return fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
    case Takes::text:
      return " -x";
    case Takes::nothing:
      break;
  }
  return "";
}

std::string fish_script(const std::vector<CommandWords>& commands) {
  std::string text =
      "# Completion of flashbench in fish. Try it: flashbench completion fish | source\n\n"
      "complete -c flashbench -f\n";
  for (const CommandWords& command : commands) {
    const std::string condition =
        command.name.empty() ? "-n __fish_use_subcommand"
                             : fmt::format("-n '__fish_seen_subcommand_from {}'", command.name);
    if (!command.name.empty()) {
      text += fmt::format("\ncomplete -c flashbench -n __fish_use_subcommand -a {} -d {}\n",
                          command.name, quoted(command.description, "\\'"));
    }
    for (const OptionWords& option : command.options) {
      text += "complete -c flashbench " + condition;
      for (const std::string& name : option.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      text += fmt::format("{} -d {}\n", fish_values(option), quoted(option.description, "\\'"));
    }
  }
  return text;
}

}  // namespace

std::string completion_script(const CLI::App& app, std::string_view shell) {
  const std::vector<CommandWords> commands = commands_of(app);
  if (shell == "bash") return bash_script(commands);
  if (shell == "zsh") return zsh_script(commands);
  if (shell == "fish") return fish_script(commands);
  throw BadInput(fmt::format("expected the shell bash, zsh or fish, found '{}'", shell));
}

}  // namespace flashbench
