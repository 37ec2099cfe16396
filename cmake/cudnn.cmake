# cuDNN's attention, for the provider cudnn: sets FLASHBENCH_WITH_CUDNN and makes flashbench_cudnn, the
# headers of cuDNN and of cudnn-frontend, the C++ layer over cuDNN's graphs; else FLASHBENCH_CUDNN_LEFT_OUT
# says why not. The library itself is opened at run time.
#
# scripts/lib/setup.sh reads the version from here and puts cudnn-frontend's headers where they are found.

set(FLASHBENCH_CUDNN AUTO CACHE STRING
  "Build the provider cudnn: ON (fetches cudnn-frontend if it is missing), OFF, or AUTO (if its headers are here)")
set(cudnn_frontend_version 1.23.0)
set(FLASHBENCH_CUDNN_FRONTEND_INCLUDE_DIR "" CACHE PATH "Folder of cudnn_frontend.h; empty: where it is found")
set(FLASHBENCH_CUDNN_INCLUDE_DIR "" CACHE PATH "Folder of cudnn.h; empty: where it is found")

# Sets `result` to the numbers of the macros named, joined by dots, that a header defines; to nothing if
# there is no such file.
function(flashbench_header_version result header)
  set(${result} "" PARENT_SCOPE)
  if(NOT EXISTS ${header})
    return()
  endif()
  set(numbers "")
  file(STRINGS ${header} lines REGEX "^#define [A-Z_]+ +[0-9]+")
  foreach(macro IN LISTS ARGN)
    string(REGEX MATCH "#define ${macro} +([0-9]+)" line "${lines}")
    list(APPEND numbers ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN numbers "." version)
  set(${result} ${version} PARENT_SCOPE)
endfunction()

# Sets `frontend` and `backend`, the folders of the headers, to what was given or is found; a frontend that
# must be there is fetched.
function(flashbench_find_cudnn_headers)
  set(frontend ${FLASHBENCH_CUDNN_FRONTEND_INCLUDE_DIR})
  set(backend ${FLASHBENCH_CUDNN_INCLUDE_DIR})
  file(GLOB python_packages "$ENV{VIRTUAL_ENV}/lib/python3*/site-packages")
  if(NOT frontend)
    find_path(frontend cudnn_frontend.h NO_CACHE
      HINTS ${PROJECT_SOURCE_DIR}/build/third_party/cudnn-frontend-${cudnn_frontend_version}/include
      PATHS ${python_packages} PATH_SUFFIXES include)
  endif()
  if(NOT backend)
    find_path(backend cudnn.h NO_CACHE
      HINTS ${CUDAToolkit_INCLUDE_DIRS} PATHS ${python_packages} PATH_SUFFIXES nvidia/cudnn/include)
  endif()
  if(NOT frontend AND FLASHBENCH_CUDNN STREQUAL "ON")
    FetchContent_Declare(cudnn_frontend GIT_REPOSITORY https://github.com/NVIDIA/cudnn-frontend.git
      GIT_TAG v${cudnn_frontend_version} GIT_SHALLOW ON
      SOURCE_SUBDIR include)  # its headers and not its CMake project
    FetchContent_MakeAvailable(cudnn_frontend)
    set(frontend ${cudnn_frontend_SOURCE_DIR}/include)
  endif()
  set(frontend ${frontend} PARENT_SCOPE)
  set(backend ${backend} PARENT_SCOPE)
endfunction()

# Sets FLASHBENCH_WITH_CUDNN, or FLASHBENCH_CUDNN_LEFT_OUT to a clause that says why not.
function(flashbench_find_cudnn)
  flashbench_find_cudnn_headers()
  flashbench_header_version(frontend_version ${frontend}/cudnn_frontend_version.h
    CUDNN_FRONTEND_MAJOR_VERSION CUDNN_FRONTEND_MINOR_VERSION CUDNN_FRONTEND_PATCH_VERSION)
  flashbench_header_version(backend_version ${backend}/cudnn_version.h
    CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL)

  set(left_out "")
  if(FLASHBENCH_CUDNN STREQUAL "OFF")
    set(left_out "FLASHBENCH_CUDNN was OFF")
  elseif(NOT frontend_version)
    set(left_out "the headers of cudnn-frontend ${cudnn_frontend_version} were not found")
  elseif(frontend_version VERSION_LESS cudnn_frontend_version)
    set(left_out "cudnn-frontend in ${frontend} is ${frontend_version}, older than ${cudnn_frontend_version}")
  elseif(NOT backend_version)
    set(left_out "the headers of cuDNN 9 were not found")
  elseif(backend_version VERSION_LESS 9 OR backend_version VERSION_GREATER_EQUAL 10)
    set(left_out "the headers in ${backend} are of cuDNN ${backend_version}, not of 9")
  endif()
  if(left_out)
    if(FLASHBENCH_CUDNN STREQUAL "ON")
      message(FATAL_ERROR "FLASHBENCH_CUDNN is ON, and ${left_out}. Name the folders with "
        "-DFLASHBENCH_CUDNN_FRONTEND_INCLUDE_DIR=DIR and -DFLASHBENCH_CUDNN_INCLUDE_DIR=DIR.")
    endif()
    message(STATUS "cuDNN: its provider is left out: ${left_out}")
    set(FLASHBENCH_CUDNN_LEFT_OUT ${left_out} PARENT_SCOPE)
    return()
  endif()

  message(STATUS "cuDNN: headers of ${backend_version}, cudnn-frontend ${frontend_version}")
  add_library(flashbench_cudnn INTERFACE)
  target_include_directories(flashbench_cudnn SYSTEM INTERFACE ${frontend} ${backend})
  target_link_libraries(flashbench_cudnn INTERFACE flashbench_cuda)
  # It calls cuDNN through a handle of dlopen; without JSON, which it would bring a copy of.
  target_compile_definitions(flashbench_cudnn INTERFACE
    NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING CUDNN_FRONTEND_SKIP_JSON_LIB)
  set(FLASHBENCH_WITH_CUDNN ON PARENT_SCOPE)
endfunction()

set(FLASHBENCH_WITH_CUDNN OFF)
if(FLASHBENCH_WITH_CUDA)
  flashbench_find_cudnn()
endif()
