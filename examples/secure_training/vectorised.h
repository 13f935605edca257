// Loops compiled for several kinds of processors, of which the program takes the best that it
// finds.
#pragma once

#if defined(__x86_64__)
#define TRAINING_VECTORISED [[gnu::target_clones("avx512f", "avx2", "default")]]
#else
#define TRAINING_VECTORISED
#endif
