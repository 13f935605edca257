// The file of a program that is about to be executed. Nothing here allocates memory, so that the
// child of a vfork() may call it.
#pragma once

#include <climits>

namespace leat::preload {

// Where execvp(3) finds it. False: nowhere.
bool find_program(const char* name, char (&found)[PATH_MAX]) noexcept;
// Why the dynamic linker will not load libleat_preload.so into what the kernel runs for this path,
// the interpreter of a script; null if it will, or if the file does not say.
const char* obstacle(const char* path) noexcept;

}  // namespace leat::preload
