#include "cli/errors.h"

#include <fmt/format.h>

#include "attention/error.h"
#include "compare/comparable.h"
#include "device/device.h"
#include "plan/config.h"

namespace flashbench {

namespace {

int explain(int code, const std::exception& error) {
  fmt::print(stderr, "flashbench: {}\n", error.what());
  return code;
}

}  // namespace

std::string exit_code_help() {
  return "Exit codes: 0 ok; 1 slower or newly wrong (--fail-on-regression); 2 usage or config; "
         "3 verification failed; 4 a case crashed, hung, ran out of memory or ended in an error; "
         "5 the baseline is unusable or not comparable; 6 no usable device; 7 cannot read or write "
         "a file; 130, 143 interrupted.";
}

int run_and_explain(const std::function<int()>& work, const CLI::App& app) {
  try {
    return work();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? exit_codes::kOk : exit_codes::kUsage;
  } catch (const ConfigError& error) {
    return explain(exit_codes::kUsage, error);
  } catch (const BadInput& error) {
    return explain(exit_codes::kUsage, error);
  } catch (const BaselineError& error) {
    return explain(exit_codes::kBaseline, error);
  } catch (const NoDevice& error) {
    return explain(exit_codes::kNoDevice, error);
  } catch (const FileError& error) {
    return explain(exit_codes::kFile, error);
  } catch (const std::exception& error) {
    return explain(exit_codes::kCaseFailed, error);
  }
}

}  // namespace flashbench
