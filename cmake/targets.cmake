# How every target of the project is built.

add_library(flashbench_options INTERFACE)
target_include_directories(flashbench_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
target_compile_options(flashbench_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual>)
if(FLASHBENCH_WERROR)
  target_compile_options(flashbench_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
if(FLASHBENCH_SANITIZE)
  target_compile_options(flashbench_options INTERFACE
    -fsanitize=${FLASHBENCH_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(flashbench_options INTERFACE -fsanitize=${FLASHBENCH_SANITIZE})
endif()

# The C interface that plugins are built against: a header.
add_library(flashbench_plugin_interface INTERFACE)
target_include_directories(flashbench_plugin_interface INTERFACE ${PROJECT_SOURCE_DIR}/include)

# flashbench_compile_one_by_one(SOURCES CUDA): files that only builds with CUDA have, and kernels among the sources,
# are compiled one by one in every build, because their anonymous namespaces may repeat names of the others.
function(flashbench_compile_one_by_one sources cuda)
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${sources} ${cuda} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# flashbench_library(NAME SOURCES a.cpp ... [CUDA b.cu ...] [NO_CUDA b_none.cpp ...] LINK target ...):
# one station of the way that the data flows, as a static library; what it may include is what it
# links. A build with CUDA takes the files behind CUDA, one without those behind NO_CUDA.
function(flashbench_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;CUDA;NO_CUDA;LINK" ${ARGN})
  if(FLASHBENCH_WITH_CUDA)
    list(APPEND ARG_SOURCES ${ARG_CUDA})
  else()
    list(APPEND ARG_SOURCES ${ARG_NO_CUDA})
  endif()
  add_library(flashbench_${name} STATIC ${ARG_SOURCES})
  flashbench_compile_one_by_one("${ARG_SOURCES}" "${ARG_CUDA}")
  target_link_libraries(flashbench_${name} PUBLIC flashbench_options ${ARG_LINK})
  if(FLASHBENCH_WITH_CUDA AND ARG_CUDA)
    target_link_libraries(flashbench_${name} PUBLIC flashbench_cuda)
  endif()
endfunction()

# flashbench_test(NAME SOURCES a.cpp ... [CUDA b.cpp ...] LINK target ...): a GoogleTest program; each of
# its tests is one of ctest's. Files behind CUDA are part of builds with CUDA only. The libraries under test do the
# work, and are optimised in full; -O1 is enough for the tests themselves and compiles a third faster.
function(flashbench_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;CUDA;LINK" ${ARGN})
  if(FLASHBENCH_WITH_CUDA)
    list(APPEND ARG_SOURCES ${ARG_CUDA})
  endif()
  add_executable(${name}_test ${ARG_SOURCES})
  flashbench_compile_one_by_one("${ARG_SOURCES}" "${ARG_CUDA}")
  target_compile_options(${name}_test PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  target_link_libraries(${name}_test PRIVATE ${ARG_LINK} GTest::gtest_main GTest::gmock)
  gtest_discover_tests(${name}_test TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT 300)
endfunction()

# flashbench_plugin(NAME a.c ...): the shared object plugins/NAME.so, against the plugin interface alone
# and so with nothing of the tool in it. C is compiled as strictly as users may compile it.
function(flashbench_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE flashbench_plugin_interface m)
  target_compile_options(${name} PRIVATE -O3
    $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra $<$<BOOL:${FLASHBENCH_WERROR}>:-Werror>>
    $<$<COMPILE_LANGUAGE:C>:-pedantic>)
  set_target_properties(${name} PROPERTIES PREFIX "" UNITY_BUILD OFF C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/plugins)
endfunction()
