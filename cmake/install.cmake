# What `cmake --install` puts where: libraries, headers, programs, man pages, and leat's description for CMake and pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(leat_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/leat)

# Two export sets, because only leat_static asks its users for the libraries that leat was built with.
install(TARGETS leat leat_trusted leat_scml leat_names EXPORT leat-shared
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS leat_static leat_trusted_static leat_scml_static EXPORT leat-static
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(kind shared static)
  install(EXPORT leat-${kind} FILE leat-${kind}.cmake NAMESPACE leat:: DESTINATION ${leat_config_dir})
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/leat DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/leatConfig.cmake.in ${PROJECT_BINARY_DIR}/leatConfig.cmake
  INSTALL_DESTINATION ${leat_config_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/leatConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/leatConfig.cmake
  ${PROJECT_BINARY_DIR}/leatConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindRdmaCore.cmake
  DESTINATION ${leat_config_dir})

# All in Libs.private, nothing in Requires.private: that would make every user need the .pc files of OpenSSL, and add the
# drivers that rdma-core lists for a program without any shared library.
set(leat_pc_private "-lssl -lcrypto -lstdc++ -pthread")
if(leat_with_ib)
  string(PREPEND leat_pc_private "-lrdmacm -libverbs ")
endif()
# An absolute folder replaces the prefix, a relative one follows it.
cmake_path(APPEND leat_pc_libdir "\${prefix}" ${CMAKE_INSTALL_LIBDIR})
cmake_path(APPEND leat_pc_includedir "\${prefix}" ${CMAKE_INSTALL_INCLUDEDIR})
# The prefix follows from where the file lies, so that an installed tree can be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
           OUTPUT_VARIABLE leat_pc_to_prefix)
foreach(name leat leat-names leat-trusted leat-scml)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

# The other libraries find libleat.so beside themselves, and programs find all, wherever the prefix is.
set_target_properties(leat_trusted leat_scml PROPERTIES INSTALL_RPATH "$ORIGIN")
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_FULL_BINDIR} OUTPUT_VARIABLE leat_bin_to_lib)
foreach(program leat-info leat-plan leat-bench leat-provision leat-attestd leat-run leat-stat)
  if(TARGET ${program})
    if(NOT program STREQUAL "leat-run") # which needs no library
      set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/${leat_bin_to_lib}")
    endif()
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

# Apart from the libraries that programs link, so that nobody does by accident.
if(TARGET leat_preload)
  install(TARGETS leat_preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/leat)
endif()

file(GLOB leat_man_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.1)
if(leat_man_pages)
  install(FILES ${leat_man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/docs/man/leat.7 DESTINATION ${CMAKE_INSTALL_MANDIR}/man7)
if(TARGET leat-attestd)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/man/leat-attestd.8 DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
  # Where systemd finds units of packages, below any prefix. systemd wants whole paths: of the prefix that is installed to.
  install(CODE "
    set(leat_bindir \"\${CMAKE_INSTALL_PREFIX}\")
    cmake_path(APPEND leat_bindir \"${CMAKE_INSTALL_BINDIR}\")
    configure_file(${PROJECT_SOURCE_DIR}/src/attestd/leat-attestd.service.in ${PROJECT_BINARY_DIR}/leat-attestd.service @ONLY)")
  install(FILES ${PROJECT_BINARY_DIR}/leat-attestd.service DESTINATION lib/systemd/system)
  install(FILES ${PROJECT_SOURCE_DIR}/src/attestd/leat-attestd.sysusers DESTINATION lib/sysusers.d RENAME leat-attestd.conf)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/models DESTINATION ${CMAKE_INSTALL_DATADIR}/leat
  FILES_MATCHING PATTERN "*.json")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Links between the pages, and from README to examples, stay right.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN man EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR} USE_SOURCE_PERMISSIONS
  FILES_MATCHING PATTERN "*.c" PATTERN "*.cc" PATTERN "*.h" PATTERN "*.sh" PATTERN "*.json")
