# Libraries: the system's if it has them in a version that works, else pinned sources from the
# internet. CI builds with those of Debian 12 and 13; the pins are Debian 12's.
#
#   CLI11 2.1 to 2.x, fmt 8 to 10, nlohmann/json 3.10 to 3.x, valijson 1.0 to 1.x, Highway 1.0 to 1.x,
#   xxHash 0.8, zlib 1.2 to 1.x, GoogleTest 1.10 to 1.x. OpenBLAS is opened at run time (src/device/blas.h).
#
# After this file: Threads::Threads CLI11::CLI11 fmt::fmt nlohmann_json::nlohmann_json
# flashbench_valijson hwy::hwy flashbench_xxhash ZLIB::ZLIB, and GTest::gtest_main GTest::gmock for the tests.

# A compiler cache where there is one, and the caller has not chosen otherwise.
find_program(FLASHBENCH_CCACHE ccache)
if(FLASHBENCH_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FLASHBENCH_CCACHE})
endif()

include(FetchContent)
find_package(PkgConfig QUIET)

# flashbench_fetch(NAME REPOSITORY TAG TARGET...): makes the targets from the library's own CMake
# project. Their headers count as the system's, so that our warnings are about our code.
function(flashbench_fetch name repository tag)
  message(STATUS "${name}: not found on this system; fetching ${repository} ${tag}")
  set(BUILD_SHARED_LIBS OFF)
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)  # what is set below reaches the options
  set(CMAKE_POLICY_DEFAULT_CMP0126 NEW)  # and the cache variables of older projects,
  set(CMAKE_POLICY_VERSION_MINIMUM 3.5)  # and CMake 4 accepts those
  FetchContent_Declare(${name} GIT_REPOSITORY ${repository} GIT_TAG ${tag} GIT_SHALLOW ON)
  FetchContent_MakeAvailable(${name})
  foreach(target IN LISTS ARGN)
    if(NOT TARGET ${target})
      message(FATAL_ERROR "${name} ${tag} from ${repository} does not define the target ${target}")
    endif()
    get_target_property(real_target ${target} ALIASED_TARGET)
    if(NOT real_target)
      set(real_target ${target})
    endif()
    get_target_property(headers ${real_target} INTERFACE_INCLUDE_DIRECTORIES)
    set_target_properties(${real_target} PROPERTIES
      INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${headers}")
  endforeach()
endfunction()

# flashbench_fetch_headers(NAME REPOSITORY TAG): only fetches; NAME_SOURCE_DIR says where to.
macro(flashbench_fetch_headers name repository tag)
  message(STATUS "${name}: not found on this system; fetching ${repository} ${tag}")
  FetchContent_Declare(${name} GIT_REPOSITORY ${repository} GIT_TAG ${tag} GIT_SHALLOW ON
    SOURCE_SUBDIR no_cmake_project)
  FetchContent_MakeAvailable(${name})
endmacro()

find_package(Threads REQUIRED)

find_package(CLI11 2.1 CONFIG QUIET)
if(NOT CLI11_FOUND)
  set(CLI11_INSTALL OFF)
  flashbench_fetch(CLI11 https://github.com/CLIUtils/CLI11.git v2.1.2 CLI11::CLI11)
endif()

# fmt states its compatibility by major version, so a lower bound is checked here.
find_package(fmt CONFIG QUIET)
if(NOT fmt_FOUND OR fmt_VERSION VERSION_LESS 8)
  set(FMT_INSTALL OFF)
  flashbench_fetch(fmt https://github.com/fmtlib/fmt.git 9.1.0 fmt::fmt)
endif()

find_package(nlohmann_json 3.10 CONFIG QUIET)
if(NOT nlohmann_json_FOUND)
  set(JSON_Install OFF)
  set(JSON_BuildTests OFF)
  flashbench_fetch(nlohmann_json https://github.com/nlohmann/json.git v3.11.2
    nlohmann_json::nlohmann_json)
endif()

# valijson: its headers alone. Its packages bring every JSON library that it can read, Qt among them;
# scripts/lib/setup.sh unpacks the headers where they are found here.
find_path(FLASHBENCH_VALIJSON_INCLUDE_DIR valijson/validator.hpp
  HINTS ${PROJECT_SOURCE_DIR}/build/third_party/valijson/usr/include DOC "Folder of valijson's headers")
if(NOT FLASHBENCH_VALIJSON_INCLUDE_DIR)
  flashbench_fetch_headers(valijson https://github.com/tristanpenman/valijson.git v1.0)
  set(FLASHBENCH_VALIJSON_INCLUDE_DIR ${valijson_SOURCE_DIR}/include)
endif()
add_library(flashbench_valijson INTERFACE)
target_include_directories(flashbench_valijson SYSTEM INTERFACE ${FLASHBENCH_VALIJSON_INCLUDE_DIR})

# Highway: by its CMake config, or by pkg-config where a distribution leaves that out.
find_package(hwy 1.0 CONFIG QUIET)
if(NOT hwy_FOUND AND PkgConfig_FOUND AND NOT CMAKE_DISABLE_FIND_PACKAGE_hwy)
  pkg_check_modules(flashbench_hwy QUIET IMPORTED_TARGET GLOBAL libhwy>=1.0)
  if(flashbench_hwy_FOUND)
    add_library(hwy::hwy ALIAS PkgConfig::flashbench_hwy)
  endif()
endif()
if(NOT TARGET hwy::hwy)
  set(HWY_ENABLE_CONTRIB OFF)
  set(HWY_ENABLE_EXAMPLES OFF)
  set(HWY_ENABLE_TESTS OFF)
  flashbench_fetch(highway https://github.com/google/highway.git 1.0.3 hwy)
  add_library(hwy::hwy ALIAS hwy)
endif()

# xxHash: its header alone.
add_library(flashbench_xxhash INTERFACE)
if(NOT CMAKE_DISABLE_FIND_PACKAGE_xxhash)
  find_path(FLASHBENCH_XXHASH_INCLUDE_DIR xxhash.h DOC "Folder of xxhash.h")
endif()
if(FLASHBENCH_XXHASH_INCLUDE_DIR)
  target_include_directories(flashbench_xxhash SYSTEM INTERFACE ${FLASHBENCH_XXHASH_INCLUDE_DIR})
else()
  flashbench_fetch_headers(xxhash https://github.com/Cyan4973/xxHash.git v0.8.1)
  target_include_directories(flashbench_xxhash SYSTEM INTERFACE ${xxhash_SOURCE_DIR})
endif()

# zlib: newer than Debian 12's, whose project always builds its examples; some versions define ZLIB::ZLIB and say where
# their headers are.
find_package(ZLIB 1.2 QUIET)
if(NOT ZLIB_FOUND)
  set(ZLIB_BUILD_EXAMPLES OFF)
  set(SKIP_INSTALL_ALL ON)
  flashbench_fetch(zlib https://github.com/madler/zlib.git v1.3.1 zlibstatic)
  target_include_directories(zlibstatic SYSTEM INTERFACE ${zlib_SOURCE_DIR} ${zlib_BINARY_DIR})
  if(NOT TARGET ZLIB::ZLIB)
    add_library(ZLIB::ZLIB ALIAS zlibstatic)
  endif()
endif()

set(FLASHBENCH_WITH_TESTS OFF)
if(NOT FLASHBENCH_TESTS STREQUAL "OFF")
  find_package(GTest 1.10 CONFIG QUIET)
  if(NOT TARGET GTest::gmock AND FLASHBENCH_TESTS STREQUAL "AUTO")
    message(STATUS "Tests: left out; there is no GoogleTest here (-DFLASHBENCH_TESTS=ON fetches it)")
  else()
    set(FLASHBENCH_WITH_TESTS ON)
  endif()
endif()
if(FLASHBENCH_WITH_TESTS)
  if(NOT TARGET GTest::gmock)
    set(INSTALL_GTEST OFF)
    flashbench_fetch(googletest https://github.com/google/googletest.git release-1.12.1
      GTest::gtest GTest::gtest_main GTest::gmock)
  endif()
  include(GoogleTest)
endif()

include(${CMAKE_CURRENT_LIST_DIR}/build_info/build_info.cmake)
