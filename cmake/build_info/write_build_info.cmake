# Run by flashbench_write_build_info: asks git, and writes build_info.cpp if it changed.

# Runs git in the source folder; the output, or nothing if it fails.
function(ask_git output)
  set(text "")
  if(git)
    execute_process(COMMAND ${git} --no-optional-locks -C ${source_dir} ${ARGN}
      OUTPUT_VARIABLE text RESULT_VARIABLE status ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT status EQUAL 0)
      set(text "")
    endif()
  endif()
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

# Sources unpacked inside another project's checkout are not of that project's commit.
ask_git(top_level rev-parse --show-toplevel)
file(REAL_PATH ${source_dir} source_dir)
if(top_level STREQUAL source_dir)
  ask_git(git_commit rev-parse --verify HEAD)
else()
  set(git_commit "")
endif()

# Results, documents and plots may change without the binary being another one.
set(git_dirty false)
if(git_commit)
  ask_git(changes status --porcelain -- CMakeLists.txt cmake configs/sweep.schema.json kernels src)
  if(changes)
    set(git_dirty true)
  endif()
endif()

configure_file(${CMAKE_CURRENT_LIST_DIR}/build_info.cpp.in ${output} @ONLY)
