/* LEAT_EXPORT marks what the shared library exports; everything else is hidden. Also for C90. */
#pragma once

#define LEAT_EXPORT __attribute__((visibility("default")))
/* Declared inside an exported class, but no part of its interface. */
#define LEAT_HIDDEN __attribute__((visibility("hidden")))
