# How every target of leat is compiled. Flags stay on targets, never global.
function(leat_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast
      -Wcast-align -Woverloaded-virtual -Wconversion -Wno-sign-conversion>)
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
    target_link_options(${target} PRIVATE -fsanitize=${LEAT_SANITIZE})
  endif()
endfunction()

# A program. leat_program(NAME source... LIBRARIES target...)
function(leat_program name)
  cmake_parse_arguments(arg "" "" "LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  leat_compile_options(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES})
endfunction()
