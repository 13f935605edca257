// Loops compiled for several kinds of processors, of which the program takes the best that it
// finds.
#pragma once

// ThreadSanitizer is not there yet when the loader asks which to take.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define TRAINING_VECTORISED [[gnu::target_clones("avx512f", "avx2", "default")]]
#else
#define TRAINING_VECTORISED
#endif
