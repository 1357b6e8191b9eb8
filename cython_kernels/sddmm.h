/* Sampled dense-dense product: a row of `a` stays in registers while the rows of `b` at its edges pass by. */
#if LANES == FULL
#define MOST 8
#else
#define MOST 2
#endif

INLINE REAL KERNEL(total)(VEC v) {
    REAL lanes[LANES];
    memcpy(lanes, &v, sizeof v);
#pragma GCC unroll 4
    for (int half = LANES / 2; half; half /= 2)
#pragma GCC unroll 8
        for (int k = 0; k < half; k++) lanes[k] += lanes[k + half];
    return lanes[0];
}

/* Columns `width` from `column` on, in `count` vectors; lanes of the last that the one before covers are dropped. */
INLINE void KERNEL(sddmm_range)(const struct sddmm *s, int64_t row, int64_t head, int64_t column, int64_t width,
                                const int count) {
    const int64_t stride = s->heads * s->width, last = width - LANES, from = head * s->width + column;
    const REAL *a = (const REAL *)s->a + row * stride + from, *b = (const REAL *)s->b + from;
    REAL *out = (REAL *)s->out + head;
    VEC kept[MOST];
    VECI fresh;
    for (int lane = 0; lane < LANES; lane++) fresh[lane] = -(INDEX)(last + lane >= (count - 1) * LANES);
#pragma GCC unroll 8
    for (int v = 0; v < count; v++) kept[v] = LOAD(a + (v < count - 1 ? v * LANES : last));
    for (int64_t edge = s->rowptr[row]; edge < s->rowptr[row + 1]; edge++) {
        const REAL *source = b + s->col[edge] * stride;
        VEC product = kept[count - 1] * LOAD(source + last);
        product = (VEC)((VECI)product & fresh);
#pragma GCC unroll 8
        for (int v = 0; v < count - 1; v++) product += kept[v] * LOAD(source + v * LANES);
        const REAL score = KERNEL(total)(product);
        out[edge * s->heads] = column ? out[edge * s->heads] + score : score;
    }
}

static void KERNEL(sddmm)(const void *task, int64_t begin, int64_t end) {
    const struct sddmm *s = (const struct sddmm *)task;
    const int64_t vectors = (s->width + LANES - 1) / LANES, ranges = (vectors + MOST - 1) / MOST;
    for (int64_t row = begin; row < end; row++)
        for (int64_t head = 0; head < s->heads; head++)
            for (int64_t range = 0; range < ranges; range++) {
                const int64_t first = vectors * range / ranges, next = vectors * (range + 1) / ranges;
                const int64_t from = first * LANES, to = next * LANES < s->width ? next * LANES : s->width;
                switch (next - first) {
#define CASE(n)                                                                                                   \
    case n: KERNEL(sddmm_range)(s, row, head, from, to - from, n); break;
                    CASE(1)
                    CASE(2)
#if LANES == FULL
                    CASE(3)
                    CASE(4)
                    CASE(5)
                    CASE(6)
                    CASE(7)
                    CASE(8)
#endif
#undef CASE
                }
            }
}
#undef MOST
