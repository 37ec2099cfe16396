# A toolchain file that chooses clang, the first that comes with libFuzzer; without one, CMake's own choice
# of compiler stands, and tests/fuzz has no programs.

if(NOT DEFINED FLASHBENCH_FUZZING_COMPILER)
  set(FLASHBENCH_FUZZING_COMPILER "")
  set(source ${CMAKE_BINARY_DIR}/CMakeFiles/fuzzing_compiler.cpp)
  # A clang that is older than the standard library beside it fails at some of its headers.
  file(WRITE ${source} "#include <chrono>\n#include <filesystem>\n#include <ranges>\n"
    "extern \"C\" int LLVMFuzzerTestOneInput() { return 0; }\n")
  foreach(candidate $ENV{CXX} clang++)
    execute_process(COMMAND ${candidate} -std=c++20 -fsanitize=fuzzer,address ${source} -o ${source}.out
      RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
    if(status EQUAL 0)
      set(FLASHBENCH_FUZZING_COMPILER ${candidate})
      break()
    endif()
  endforeach()
  set(FLASHBENCH_FUZZING_COMPILER "${FLASHBENCH_FUZZING_COMPILER}" CACHE STRING
    "Compiler with libFuzzer; empty: there is none")
endif()
if(FLASHBENCH_FUZZING_COMPILER)
  set(CMAKE_CXX_COMPILER ${FLASHBENCH_FUZZING_COMPILER})
endif()
