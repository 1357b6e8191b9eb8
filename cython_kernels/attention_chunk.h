/* What fused attention does with a chunk of edges of one row, for one head. */
#include "exp.h"
#if LANES == FULL
#define MOST 8 /* vectors of a row at a time */
#else
#define MOST 2
#endif

#if defined(__clang__)
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, (VECI){__VA_ARGS__})
#endif
#if LANES == 16
#define ALL(of, bit)                                                                                              \
    of(0, bit), of(1, bit), of(2, bit), of(3, bit), of(4, bit), of(5, bit), of(6, bit), of(7, bit), of(8, bit),   \
        of(9, bit), of(10, bit), of(11, bit), of(12, bit), of(13, bit), of(14, bit), of(15, bit)
#elif LANES == 8
#define ALL(of, bit) of(0, bit), of(1, bit), of(2, bit), of(3, bit), of(4, bit), of(5, bit), of(6, bit), of(7, bit)
#elif LANES == 4
#define ALL(of, bit) of(0, bit), of(1, bit), of(2, bit), of(3, bit)
#else
#define ALL(of, bit) of(0, bit), of(1, bit)
#endif
#define LOWER(lane, bit) (((lane) & ~(bit)) + ((lane) & (bit) ? LANES : 0))
#define UPPER(lane, bit) (LOWER(lane, bit) + (bit))
/* Halves the vectors: those `bit` apart are added in pairs, the first in the lanes without it, the second in the rest. */
#define FOLD(v, bit)                                                                                              \
    _Pragma("GCC unroll 8") for (int k = 0; k < bit; k++)                                                                                 \
        v[k] = PICK(v[k], v[k + bit], ALL(LOWER, bit)) + PICK(v[k], v[k + bit], ALL(UPPER, bit));

/* Lane k is the sum of the lanes of v[k]. */
INLINE VEC KERNEL(totals)(VEC v[LANES]) {
#if LANES >= 16
    FOLD(v, 8)
#endif
#if LANES >= 8
    FOLD(v, 4)
#endif
#if LANES >= 4
    FOLD(v, 2)
#endif
#if LANES >= 2
    FOLD(v, 1)
#endif
    return v[0];
}

INLINE VEC KERNEL(chosen)(VECI which, VEC yes, VEC no) { return (VEC)((which & (VECI)yes) | (~which & (VECI)no)); }

/* score[e] = <a, b[e]>, or with `att` <att, leaky_relu(a + b[e])>, in `vectors` of them of which the last may overlap. */
INLINE void KERNEL(score_range)(const struct chunk *edges, const REAL *a, const REAL *b, int64_t stride,
                                const REAL *att, REAL slope, int64_t width, REAL *score, const int vectors,
                                const int leaky, int more) {
    const int64_t last = width - LANES;
    VECI fresh = {0};
    VEC kept[MOST], weight[MOST];
    for (int lane = 0; lane < LANES; lane++) fresh[lane] = -(INDEX)(last + lane >= (vectors - 1) * LANES);
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
        kept[v] = LOAD(a + (v < vectors - 1 ? v * LANES : last));
        if (leaky) weight[v] = LOAD(att + (v < vectors - 1 ? v * LANES : last));
    }
    for (int64_t e = 0; e < edges->count; e += LANES) {
        VEC sum[LANES];
#pragma GCC unroll 16
        for (int k = 0; k < LANES; k++) {
            const REAL *source = b + edges->col[e + k] * stride;
#pragma GCC unroll 8
            for (int v = vectors - 1; v >= 0; v--) {
                VEC x = LOAD(source + (v < vectors - 1 ? v * LANES : last));
                if (leaky) {
                    x += kept[v];
                    x = KERNEL(chosen)(x > 0, x, x * slope);
                }
                const VEC product = x * (leaky ? weight[v] : kept[v]);
                sum[k] = v == vectors - 1 ? (VEC)((VECI)product & fresh) : sum[k] + product;
            }
        }
        const VEC total = KERNEL(totals)(sum);
        STORE(score + e, more ? LOAD(score + e) + total : total);
    }
}

/* out += sum of weight[e] * b[e]; with `gate` the sum of weight[e] where gate + b[e] > 0, channel by channel. */
INLINE void KERNEL(sum_range)(const struct chunk *edges, const REAL *weight, const REAL *b, int64_t stride,
                              const REAL *gate, int64_t width, REAL *out, const int vectors, const int gated) {
    const int together = vectors == 1 ? 4 : vectors == 2 ? 2 : 1; /* hides the latency of adds */
    const int64_t last = width - LANES;
    VEC sum[4][MOST] = {{{0}}}, kept[MOST];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
        sum[0][v] = LOAD(out + (v < vectors - 1 ? v * LANES : last));
        if (gated) kept[v] = LOAD(gate + (v < vectors - 1 ? v * LANES : last));
    }
#define ADD(k)                                                                                                    \
    for (int v = 0; v < vectors; v++) {                                                                           \
        const VEC x = LOAD(b + edges->col[e + k] * stride + (v < vectors - 1 ? v * LANES : last));                \
        const VEC one = (VEC){0} + weight[e + k];                                                                 \
        sum[k][v] += gated ? (VEC)((VECI)one & (x + kept[v] > 0)) : one * x;                                      \
    }
    int64_t e = 0;
    for (; e + together <= edges->count; e += together)
#pragma GCC unroll 4
        for (int k = 0; k < together; k++)
#pragma GCC unroll 8
            ADD(k)
    for (; e < edges->count; e++)
#pragma GCC unroll 8
        ADD(0)
#undef ADD
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) {
#pragma GCC unroll 4
        for (int k = 1; k < together; k++) sum[0][v] += sum[k][v];
    }
#pragma GCC unroll 8
    for (int v = 0; v < vectors; v++) STORE(out + (v < vectors - 1 ? v * LANES : last), sum[0][v]);
}

static void KERNEL(dots)(const struct chunk *edges, const REAL *a, const REAL *b, int64_t stride, int64_t width,
                         REAL *score) {
#define RANGE(n) KERNEL(score_range)(edges, a + from, b + from, stride, a, 0, to - from, score, n, 0, from > 0)
    EACH_RANGE(width)
#undef RANGE
}

/* <a, b>, bit for bit as `dots` has it: what is equal then cancels. */
__attribute__((unused)) static REAL KERNEL(dot)(const REAL *a, const REAL *b, int64_t width) {
    static const struct chunk itself = {.count = 1};
    REAL score[LANES] = {0};
#define RANGE(n) KERNEL(score_range)(&itself, a + from, b + from, 0, a, 0, to - from, score, n, 0, from > 0)
    EACH_RANGE(width)
#undef RANGE
    return score[0];
}

__attribute__((unused)) static void KERNEL(leaky_dots)(const struct chunk *edges, const REAL *a, const REAL *b,
                                                       int64_t stride, const REAL *att, REAL slope,
                                                       int64_t width, REAL *score) {
#define RANGE(n)                                                                                                  \
    KERNEL(score_range)(edges, a + from, b + from, stride, att + from, slope, to - from, score, n, 1, from > 0)
    EACH_RANGE(width)
#undef RANGE
}

static void KERNEL(add)(const struct chunk *edges, const REAL *weight, const REAL *b, int64_t stride, int64_t width,
                        REAL *out) {
#define RANGE(n) KERNEL(sum_range)(edges, weight, b + from, stride, b, to - from, out + from, n, 0)
    EACH_RANGE(width)
#undef RANGE
}

__attribute__((unused)) static void KERNEL(add_gated)(const struct chunk *edges, const REAL *weight, const REAL *b,
                                                      int64_t stride, const REAL *gate, int64_t width,
                                                      REAL *out) {
#define RANGE(n) KERNEL(sum_range)(edges, weight, b + from, stride, gate + from, to - from, out + from, n, 1)
    EACH_RANGE(width)
#undef RANGE
}
#undef MOST
#undef FOLD
#undef UPPER
#undef LOWER
#undef ALL
#undef PICK
