/* Compiles the file named by TEMPLATE once per instruction set, element type and vector length.
 *
 * The template sees REAL (float or double), INDEX (the integer as wide), LANES (elements per vector), FULL (LANES of
 * the longest vector), VEC and VECI (vectors of REAL and INDEX) and KERNEL(name), which makes a name its own.
 */
#include "kernel.h"

#define ISA baseline
#define VECTOR_BYTES 16
#include "isa_types.h"
#undef ISA
#undef VECTOR_BYTES

#ifdef HAVE_X86_LEVELS
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define ISA avx2
#define VECTOR_BYTES 32
#include "isa_types.h"
#undef ISA
#undef VECTOR_BYTES
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")
#endif
#define ISA avx512
#define VECTOR_BYTES 64
#include "isa_types.h"
#undef ISA
#undef VECTOR_BYTES
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#undef TEMPLATE
