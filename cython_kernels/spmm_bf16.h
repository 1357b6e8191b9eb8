/* Sum and mean of floats that are gathered in bf16, half as many bytes, and accumulated as floats.
 *
 * A cache line holds 32 features: feature k in the lower half of 32-bit word k, feature k + 16 in the upper one, so
 * that a shift and a mask make them floats again. */
#if LANES == FULL
#define LINE ((int64_t)(64 / sizeof(REAL)))
#define VECTORS (64 / (int)sizeof(VEC))
#define MOST (VECTORS < 4 ? 4 / VECTORS : 1) /* lines of a row at once: 8 accumulators */

/* Rounded to nearest, ties to even; a NaN stays one. */
INLINE uint32_t KERNEL(bf16)(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : bits >> 16 | 0x40;
}

/* The first `count` of 32 features as a line; those that are missing are zero. */
INLINE void KERNEL(bf16_line)(const float *x, int64_t count, uint32_t *line) {
    float padded[32] = {0};
    if (count < 32) x = memcpy(padded, x, count * sizeof(float));
    for (int k = 0; k < 16; k++) line[k] = KERNEL(bf16)(x[k]) | KERNEL(bf16)(x[k + 16]) << 16;
}

/* Add a line of the source's features, as they are or in bf16, to VECTORS or twice as many sums. */
INLINE void KERNEL(add_line)(VEC *sum, const REAL *line, REAL weight, const int weighted, const int bf16) {
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        VEC lower = LOAD(line + v * LANES), upper = lower;
        if (bf16) {
            upper = (VEC)((VECI)lower & (VECI)((VECI){0} - 65536));
            lower = (VEC)((VECI)lower << 16);
            sum[VECTORS + v] += weighted ? weight * upper : upper;
        }
        sum[v] += weighted ? weight * lower : lower;
    }
}

static void KERNEL(bf16_pack)(const void *task, int64_t begin, int64_t end) {
    const struct spmm *s = (const struct spmm *)task;
    for (int64_t source = begin; source < end; source++)
        for (int64_t column = 0; column < s->width; column += 32)
            KERNEL(bf16_line)((const float *)s->x + source * s->width + column,
                              s->width - column < 32 ? s->width - column : 32,
                              (uint32_t *)s->packed + (source * ((s->width + 31) / 32) + column / 32) * 16);
}

INLINE void KERNEL(bf16_range)(const struct spmm *s, int64_t begin, int64_t end, int64_t column, const int lines,
                               const int weighted) {
    const int64_t stride = (s->width + 31) / 32 * LINE, count = s->width - column;
    const REAL *x = (const REAL *)s->packed + column / 32 * LINE, *value = (const REAL *)s->value;
    const int64_t final = s->rowptr[end] - 1;
    for (int64_t row = begin; row < end; row++) {
        const int64_t stop = s->rowptr[row + 1], degree = stop - s->rowptr[row];
        VEC sum[MOST][2 * VECTORS] = {{{0}}};
        for (int64_t edge = s->rowptr[row]; edge < stop; edge++) {
            const REAL *source = x + s->col[edge] * stride;
            const REAL *next = x + s->col[edge + s->ahead < final ? edge + s->ahead : final] * stride;
#pragma GCC unroll 4
            for (int k = 0; k < lines; k++) {
                if (s->ahead) __builtin_prefetch(next + k * LINE);
                KERNEL(add_line)(sum[k], source + k * LINE, weighted ? value[edge] : 1, weighted, 1);
            }
        }
        const REAL scale = s->mean && degree ? 1 / (REAL)degree : 1;
#pragma GCC unroll 4
        for (int k = 0; k < lines; k++) {
#pragma GCC unroll 8
            for (int v = 0; v < 2 * VECTORS; v++) sum[k][v] *= scale;
            REAL *out = (REAL *)s->out + row * s->width + column + k * 32;
            if (count - k * 32 >= 32) memcpy(out, sum[k], sizeof(sum[k]));
            else memcpy(out, sum[k], (count - k * 32) * sizeof(REAL));
        }
    }
}

#define RANGE(n)                                                                                                  \
    if (s->value) KERNEL(bf16_range)(s, begin, end, column, n, 1);                                                \
    else KERNEL(bf16_range)(s, begin, end, column, n, 0)

static void KERNEL(bf16_sum)(const void *task, int64_t begin, int64_t end) {
    const struct spmm *s = (const struct spmm *)task;
    for (int64_t column = 0; column < s->width; column += 32 * MOST) {
        const int64_t lines = (s->width - column + 31) / 32;
        switch (lines < MOST ? lines : MOST) { CASE(1) CASE(2) CASE(3) CASE(4) }
    }
}
#undef RANGE
#undef MOST
#undef LINE
#undef VECTORS
#endif
