/* What every kernel shares: its type, the table of its copies, the choice among them and the split of rows. */
#ifndef GNNBENCH_KERNEL_H
#define GNNBENCH_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif
#if defined(__x86_64__) && defined(__linux__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11) && \
    !defined(GNNBENCH_BASELINE_ONLY)
#define HAVE_AMX 1
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

_Static_assert(sizeof(void *) == sizeof(int64_t), "record.pxi fills structs by fields of 8 bytes");

typedef void kernel_fn(const void *task, int64_t begin, int64_t end);
typedef kernel_fn *kernel_table[3][2][5];
typedef kernel_fn *longest_table[3][2];

/* Splits `width` columns into even ranges of at most MOST vectors, and runs RANGE(n) on the columns from..to of each:
 * n, the number of its vectors, is a constant, so that they can stay in registers. */
#define CASE(n)                      \
    case n:                          \
        if (n <= MOST) { RANGE(n); } \
        break;
#define EACH_RANGE(width)                                                                         \
    const int64_t vectors = ((width) + LANES - 1) / LANES, ranges = (vectors + MOST - 1) / MOST;  \
    for (int64_t range = 0; range < ranges; range++) {                                            \
        const int64_t first = vectors * range / ranges, next = vectors * (range + 1) / ranges;    \
        const int64_t from = first * LANES, to = next * LANES < (width) ? next * LANES : (width); \
        switch (next - first) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) } \
    }

/* clang-format off */
#if defined(__x86_64__) && !defined(GNNBENCH_BASELINE_ONLY)
#define HAVE_X86_LEVELS 1
#define KERNELS(name)                                                                                             \
    {{{name##_baseline_float_1, name##_baseline_float_2, name##_baseline_float_4},                                \
      {name##_baseline_double_1, name##_baseline_double_2}},                                                      \
     {{name##_avx2_float_1, name##_avx2_float_2, name##_avx2_float_4, name##_avx2_float_8},                       \
      {name##_avx2_double_1, name##_avx2_double_2, name##_avx2_double_4}},                                        \
     {{name##_avx512_float_1, name##_avx512_float_2, name##_avx512_float_4, name##_avx512_float_8,                \
       name##_avx512_float_16},                                                                                   \
      {name##_avx512_double_1, name##_avx512_double_2, name##_avx512_double_4, name##_avx512_double_8}}}
#else
#define KERNELS(name)                                                                                             \
    {{{name##_baseline_float_1, name##_baseline_float_2, name##_baseline_float_4},                                \
      {name##_baseline_double_1, name##_baseline_double_2}}}
#endif

/* The copies with the longest vectors, of kernels that need no others, and of those that know only floats. */
#ifdef HAVE_X86_LEVELS
#define LONGEST(name)                                                                                             \
    {{name##_baseline_float_4, name##_baseline_double_2},                                                         \
     {name##_avx2_float_8, name##_avx2_double_4},                                                                 \
     {name##_avx512_float_16, name##_avx512_double_8}}
#define LONGEST_FLOAT(name) {{name##_baseline_float_4}, {name##_avx2_float_8}, {name##_avx512_float_16}}
#else
#define LONGEST(name) {{name##_baseline_float_4, name##_baseline_double_2}}
#define LONGEST_FLOAT(name) {{name##_baseline_float_4}}
#endif
/* clang-format on */

/* Whether this processor multiplies matrices by AMX, and the system lets this process do so from now on. */
static inline int amx_allowed(void) {
#ifdef HAVE_AMX
    enum { BF16_TILES = 1 << 22 | 1 << 24, BF16_VECTORS = 1 << 5, ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d, vectors;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & BF16_TILES) == BF16_TILES &&
           __get_cpuid_count(7, 1, &vectors, &b, &c, &d) && (vectors & BF16_VECTORS) &&
           !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA);
#else
    return 0;
#endif
}

/* The highest level this processor runs: 0 baseline (SSE2, NEON), 1 AVX2 with FMA, 2 AVX-512, 3 with AMX. */
static inline int isa_highest(void) {
#ifdef HAVE_X86_LEVELS
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return 1;
    return amx_allowed() ? 3 : 2;
#else
    return 0;
#endif
}

/* The copy whose vectors fit best into rows of `width` elements. */
static inline kernel_fn *kernel_for(kernel_table table, int isa, int is_double, int64_t width) {
    int lanes = 0;
    while (lanes < 4 && (2 << lanes) <= width && table[isa][is_double][lanes + 1]) lanes++;
    return table[isa][is_double][lanes];
}

/* First row of `part` out of `parts` pieces of equal work, counting a row as one edge. */
static inline int64_t split_rows(const int64_t *rowptr, int64_t rows, int64_t part, int64_t parts) {
    const double target = (double)(rowptr[rows] + rows) * (double)part / (double)parts;
    int64_t low = 0, high = rows;
    if (part >= parts) return rows;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if ((double)(rowptr[middle] + middle) < target) low = middle + 1;
        else high = middle;
    }
    return low;
}
#endif
