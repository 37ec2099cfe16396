# The target `package`: a .tar.gz that runs from any folder, and a .deb. Both bring every library but libc, in
# lib/flashbench; what belongs to a GPU (driver, cuBLAS, cuDNN, CUPTI) is the machine's and opened at run time.

set(bundle_dir ${CMAKE_INSTALL_LIBDIR}/flashbench)
set_target_properties(flashbench PROPERTIES INSTALL_RPATH "$ORIGIN/../${bundle_dir}")
install(RUNTIME_DEPENDENCY_SET flashbench_libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread)\\.so"
  LIBRARY DESTINATION ${bundle_dir})

# OpenBLAS from its archive: the shared library of Debian's package needs Fortran's as well, for LAPACK. Debian has
# the archive in libopenblas-pthread-dev.
find_library(FLASHBENCH_OPENBLAS_ARCHIVE libopenblas.a PATH_SUFFIXES openblas-pthread
  DOC "OpenBLAS as a static library, built with threads")
if(NOT FLASHBENCH_OPENBLAS_ARCHIVE)
  message(FATAL_ERROR "FLASHBENCH_BUNDLE is ON, and there is no libopenblas.a. Install it (Debian and Ubuntu: "
    "apt-get install libopenblas-pthread-dev), or name it with -DFLASHBENCH_OPENBLAS_ARCHIVE=FILE.")
endif()
file(CONFIGURE OUTPUT openblas.c CONTENT "/* all of it is in the archive */\n")
add_library(flashbench_openblas SHARED ${CMAKE_CURRENT_BINARY_DIR}/openblas.c)
set_target_properties(flashbench_openblas PROPERTIES OUTPUT_NAME openblas SOVERSION 0)
foreach(symbol cblas_sgemm cblas_dgemm openblas_get_config openblas_get_corename openblas_get_parallel)
  target_link_options(flashbench_openblas PRIVATE LINKER:-u,${symbol})
endforeach()
target_link_libraries(flashbench_openblas PRIVATE ${FLASHBENCH_OPENBLAS_ARCHIVE} Threads::Threads m)
install(TARGETS flashbench_openblas LIBRARY DESTINATION ${bundle_dir} NAMELINK_SKIP)

execute_process(COMMAND getconf GNU_LIBC_VERSION OUTPUT_VARIABLE libc OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REGEX REPLACE "^glibc " "" libc "${libc}")

set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_NAME flashbench)
set(CPACK_PACKAGE_VENDOR flashbench)
set(CPACK_PACKAGE_CONTACT "The flashbench developers <flashbench@localhost>")
set(CPACK_PACKAGE_FILE_NAME flashbench-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${libc})")
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libcublas-13-0 | libcublas-12-9, python3-pandas, python3-matplotlib")
include(CPack)
