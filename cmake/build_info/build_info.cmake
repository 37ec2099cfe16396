# The library flashbench_build_info. Its source is written at build time, because a commit does not
# make CMake configure again, and only when it changes, so that an idle build compiles nothing.

set(build_info_cpp ${PROJECT_BINARY_DIR}/build_info.cpp)
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type_upper)
string(STRIP "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type_upper}}" build_flags)

find_package(Git QUIET)
add_custom_target(flashbench_write_build_info
  COMMAND ${CMAKE_COMMAND}
    -D "git=${GIT_EXECUTABLE}"
    -D "source_dir=${PROJECT_SOURCE_DIR}"
    -D "output=${build_info_cpp}"
    -D "version=${PROJECT_VERSION}"
    -D "compiler=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
    -D "build_type=${CMAKE_BUILD_TYPE}"
    -D "flags=${build_flags}"
    -D "sanitizers=${FLASHBENCH_SANITIZE}"
    -P ${CMAKE_CURRENT_LIST_DIR}/write_build_info.cmake
  BYPRODUCTS ${build_info_cpp}
  COMMENT "Asking git what is being built"
  VERBATIM)

add_library(flashbench_build_info STATIC ${build_info_cpp})
add_dependencies(flashbench_build_info flashbench_write_build_info)
target_include_directories(flashbench_build_info PUBLIC ${CMAKE_CURRENT_LIST_DIR})
