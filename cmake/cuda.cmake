# CUDA where there is a toolkit: sets FLASHBENCH_WITH_CUDA, and FLASHBENCH_WITH_CUPTI where its profiler's
# headers are; makes flashbench_cuda, which targets that use CUDA link. Its runtime is linked statically and cuBLAS opened at run time, so that the
# binary starts where there is neither a driver nor a toolkit.

# Sets `result` to the architectures of this machine's GPUs; to nothing where there is none.
function(flashbench_native_architectures result)
  set(architectures "")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" capabilities "${capabilities}")
    foreach(capability IN LISTS capabilities)
      string(REPLACE "." "" architecture "${capability}")
      string(REGEX REPLACE "^90$" "90a" architecture "${architecture}")
      list(APPEND architectures ${architecture}-real)
    endforeach()
    list(REMOVE_DUPLICATES architectures)
  endif()
  set(${result} ${architectures} PARENT_SCOPE)
endfunction()

set(FLASHBENCH_WITH_CUDA OFF)
set(FLASHBENCH_WITH_CUPTI OFF)
set(least_cuda 12.4)
set(cuda_left_out "there is no CUDA toolkit ${least_cuda} or later with cuBLAS")

if(FLASHBENCH_CUDA STREQUAL "OFF")
  set(cuda_left_out "FLASHBENCH_CUDA is OFF")
else()
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin DOC "The CUDA compiler")
  endif()
  flashbench_native_architectures(native_architectures)
  if(CMAKE_CUDA_COMPILER AND FLASHBENCH_CUDA STREQUAL "AUTO" AND NOT native_architectures)
    set(cuda_left_out "there is a toolkit and no GPU; -DFLASHBENCH_CUDA=ON builds for Hopper")
  elseif(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES ${FLASHBENCH_CUDA_ARCHITECTURES})
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES ${native_architectures})
    endif()
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90a-real)
    endif()
    if(FLASHBENCH_CCACHE AND NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${FLASHBENCH_CCACHE})
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit QUIET)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL ${least_cuda} AND TARGET CUDA::cublas)
      set(FLASHBENCH_WITH_CUDA ON)
    endif()
  endif()
endif()

if(FLASHBENCH_CUDA STREQUAL "ON" AND NOT FLASHBENCH_WITH_CUDA)
  message(FATAL_ERROR "FLASHBENCH_CUDA is ON, and there is no CUDA toolkit ${least_cuda} or later "
    "with cuBLAS. Name its compiler with -DCMAKE_CUDA_COMPILER=/path/to/nvcc.")
endif()

if(FLASHBENCH_WITH_CUDA)
  message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION}, for ${CMAKE_CUDA_ARCHITECTURES}")
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  endif()
  add_library(flashbench_cuda INTERFACE)
  target_include_directories(flashbench_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  # CUPTI may be missing from a toolkit, and has its range profiler from CUDA 12.8 on; it is opened at
  # run time.
  find_path(FLASHBENCH_CUPTI_INCLUDE_DIR cupti_range_profiler.h
    HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/include
    DOC "Folder of CUPTI's headers")
  if(FLASHBENCH_CUPTI_INCLUDE_DIR)
    set(FLASHBENCH_WITH_CUPTI ON)
    target_include_directories(flashbench_cuda SYSTEM INTERFACE ${FLASHBENCH_CUPTI_INCLUDE_DIR})
  else()
    message(STATUS "CUPTI: not found; hardware counters are left out")
  endif()
  target_link_libraries(flashbench_cuda INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS})
  # 554: a view of const data could be converted to itself, and never is.
  target_compile_options(flashbench_cuda INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo -diag-suppress=554>)
else()
  message(STATUS "CUDA: left out, this build runs on CPUs only: ${cuda_left_out}")
endif()
