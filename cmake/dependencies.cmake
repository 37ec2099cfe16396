# Libraries: the system's if it has them in a version that works, else pinned sources from the
# internet. The pins are the versions in Debian 12, which the project is developed with.
#
# After this file: Threads::Threads CLI11::CLI11 fmt::fmt nlohmann_json::nlohmann_json valijson
# hwy::hwy flashbench_xxhash flashbench_blas, and GTest::gtest_main GTest::gmock for the tests.

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

# Later releases of valijson put their target into a namespace.
find_package(valijson CONFIG QUIET)
if(TARGET ValiJSON::valijson AND NOT TARGET valijson)
  add_library(valijson ALIAS ValiJSON::valijson)
elseif(NOT TARGET valijson)
  set(valijson_BUILD_TESTS OFF)
  set(valijson_BUILD_EXAMPLES OFF)
  flashbench_fetch(valijson https://github.com/tristanpenman/valijson.git v1.0 valijson)
endif()

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
  message(STATUS "xxhash: not found on this system; fetching v0.8.1")
  FetchContent_Declare(xxhash GIT_REPOSITORY https://github.com/Cyan4973/xxHash.git GIT_TAG v0.8.1
    GIT_SHALLOW ON)
  FetchContent_MakeAvailable(xxhash)  # has no CMake project at its top: only fetched
  target_include_directories(flashbench_xxhash SYSTEM INTERFACE ${xxhash_SOURCE_DIR})
endif()

# OpenBLAS and no other BLAS: the naive provider sets its thread count by OpenBLAS's own call. Not
# fetched, because building it takes far longer than installing it.
find_package(OpenBLAS CONFIG QUIET)
if(OpenBLAS_FOUND)
  set(blas_include_dirs ${OpenBLAS_INCLUDE_DIRS})
  set(blas_libraries ${OpenBLAS_LIBRARIES})
elseif(PkgConfig_FOUND AND NOT CMAKE_DISABLE_FIND_PACKAGE_OpenBLAS)
  pkg_check_modules(flashbench_openblas QUIET openblas)
  set(blas_include_dirs ${flashbench_openblas_INCLUDE_DIRS})
  set(blas_libraries ${flashbench_openblas_LINK_LIBRARIES})
endif()
if(NOT blas_libraries)
  message(FATAL_ERROR "OpenBLAS is missing, which the naive provider needs. Install it "
    "(Debian and Ubuntu: apt-get install libopenblas-pthread-dev; Fedora: dnf install openblas-devel; "
    "or conda install -c conda-forge openblas), or name its folder with -DCMAKE_PREFIX_PATH=DIR.")
endif()
add_library(flashbench_blas INTERFACE)
target_include_directories(flashbench_blas SYSTEM INTERFACE ${blas_include_dirs})
target_link_libraries(flashbench_blas INTERFACE ${blas_libraries})

if(FLASHBENCH_TESTS)
  find_package(GTest 1.10 CONFIG QUIET)
  if(NOT TARGET GTest::gmock)
    set(INSTALL_GTEST OFF)
    flashbench_fetch(googletest https://github.com/google/googletest.git release-1.12.1
      GTest::gtest GTest::gtest_main GTest::gmock)
  endif()
  include(GoogleTest)
endif()

include(${CMAKE_CURRENT_LIST_DIR}/build_info/build_info.cmake)
