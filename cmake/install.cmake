# What `cmake --install` puts where: the binary, the configs, the header for plugins, and the shells' completions, which the
# binary prints itself.

include(GNUInstallDirs)

set(completions_dir ${PROJECT_BINARY_DIR}/completions)
set(completion_files "")
foreach(shell_and_file bash:flashbench zsh:_flashbench fish:flashbench.fish)
  string(REPLACE ":" ";" pair ${shell_and_file})
  list(GET pair 0 shell)
  list(GET pair 1 file)
  add_custom_command(
    OUTPUT ${completions_dir}/${shell}/${file}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${completions_dir}/${shell}
    COMMAND $<TARGET_FILE:flashbench> completion ${shell} > ${completions_dir}/${shell}/${file}
    DEPENDS flashbench
    COMMENT "Writing the ${shell} completion"
    VERBATIM)
  list(APPEND completion_files ${completions_dir}/${shell}/${file})
endforeach()
add_custom_target(flashbench_completions ALL DEPENDS ${completion_files})

install(TARGETS flashbench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/flashbench/configs
  FILES_MATCHING PATTERN "*.json")
install(FILES ${PROJECT_SOURCE_DIR}/include/flashbench/plugin.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/flashbench)
install(FILES ${completions_dir}/bash/flashbench
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${completions_dir}/zsh/_flashbench
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${completions_dir}/fish/flashbench.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
