# Every build option, with defaults that depend on whether leat is the top-level project.
option(LEAT_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(LEAT_BUILD_TOOLS "Build leat-info, leat-plan, leat-provision, leat-attestd and leat-run" ${PROJECT_IS_TOP_LEVEL})
option(LEAT_BUILD_BENCH "Build leat-bench" ${PROJECT_IS_TOP_LEVEL})
option(LEAT_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(LEAT_INSTALL "Generate install rules" ${PROJECT_IS_TOP_LEVEL})
option(LEAT_CCACHE "Compile through ccache where it is installed" ${PROJECT_IS_TOP_LEVEL})
option(LEAT_WERROR "Treat compiler warnings as errors" OFF)
set(LEAT_WITH_IB AUTO CACHE STRING "Build the ib device: AUTO (if rdma-core's headers are there), ON, OFF")
set_property(CACHE LEAT_WITH_IB PROPERTY STRINGS AUTO ON OFF)
set(LEAT_BENCH_GRPC AUTO CACHE STRING "Build gRPC into leat-bench transfer, to compare with: AUTO (if it is installed), ON, OFF")
set_property(CACHE LEAT_BENCH_GRPC PROPERTY STRINGS AUTO ON OFF)
option(LEAT_FUZZ "Build the fuzz targets for libFuzzer too: needs clang and LEAT_SANITIZE=address,undefined,fuzzer-no-link" OFF)
set(LEAT_SANITIZE "" CACHE STRING "Sanitizers for leat and its tests: empty, 'address,undefined' or 'thread'")

# A parent project decides for itself.
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# A checkout profits from what another one, elsewhere, has compiled.
if(LEAT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  find_program(LEAT_CCACHE_PROGRAM ccache)
  if(LEAT_CCACHE_PROGRAM)
    foreach(language C CXX)
      set(CMAKE_${language}_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${LEAT_CCACHE_PROGRAM})
    endforeach()
  endif()
endif()
