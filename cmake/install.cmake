# What `cmake --install` puts where: the binary, the configs, the header for plugins, the shells' completions
# and the manual page. The binary prints the last two itself, when it is installed.

include(GNUInstallDirs)

install(TARGETS flashbench RUNTIME_DEPENDENCY_SET flashbench_libraries
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/flashbench/configs
  FILES_MATCHING PATTERN "*.json")
install(FILES ${PROJECT_SOURCE_DIR}/include/flashbench/plugin.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/flashbench)

# flashbench_install_printed(FOLDER FILE VERB...): installs what the binary prints.
function(flashbench_install_printed folder file)
  set(printed ${PROJECT_BINARY_DIR}/printed/${file})
  list(JOIN ARGN "\" \"" words)
  install(CODE "
    file(MAKE_DIRECTORY \"${PROJECT_BINARY_DIR}/printed\")
    execute_process(COMMAND \"$<TARGET_FILE:flashbench>\" \"${words}\"
      OUTPUT_FILE \"${printed}\" COMMAND_ERROR_IS_FATAL ANY)")
  install(FILES ${printed} DESTINATION ${folder})
endfunction()

flashbench_install_printed(${CMAKE_INSTALL_DATADIR}/bash-completion/completions flashbench completion bash)
flashbench_install_printed(${CMAKE_INSTALL_DATADIR}/zsh/site-functions _flashbench completion zsh)
flashbench_install_printed(${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d flashbench.fish completion fish)
flashbench_install_printed(${CMAKE_INSTALL_MANDIR}/man1 flashbench.1 manual)

if(FLASHBENCH_BUNDLE)
  include(cmake/package.cmake)
endif()
