# How every target of leat is compiled. Flags stay on targets, never global.
function(leat_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Wold-style-cast
      -Wcast-align -Woverloaded-virtual -Wconversion -Wno-sign-conversion>)
  # Of files that are compiled as one, one may hide another's names, and all but the first look like headers.
  if(NOT CMAKE_UNITY_BUILD)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wshadow>)
  else()
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
  # Members that a designated initializer leaves out are meant to be empty.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
  # GCC 12 takes "text" + std::string for an overlapping copy (GCC bug 105651).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
  if(LEAT_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(LEAT_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${LEAT_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=undefined)
    # As gcc says it; clang has __has_feature() instead.
    string(REGEX MATCH "address|thread" sanitizer ${LEAT_SANITIZE})
    string(TOUPPER ${sanitizer} sanitizer)
    target_compile_definitions(${target} PRIVATE $<$<C_COMPILER_ID:Clang>:__SANITIZE_${sanitizer}__>)
    target_link_options(${target} PRIVATE -fsanitize=${LEAT_SANITIZE})
  endif()
endfunction()

# Where CMAKE_UNITY_BUILD is on, as in all presets but debug, sources of one folder are compiled as one, in half the time.
function(leat_unite target)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    cmake_path(GET source PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP "${folder}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()

# A program. leat_program(NAME source... LIBRARIES target...)
function(leat_program name)
  cmake_parse_arguments(arg "" "" "LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  leat_compile_options(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES})
  set_target_properties(${name} PROPERTIES UNITY_BUILD_MODE GROUP)
  # clang leaves a part of the sanitizers' functions out where it links a program in C, and leat needs them.
  if(LEAT_SANITIZE)
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  endif()
endfunction()
