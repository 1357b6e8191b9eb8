/* Sampled dense-dense product: a row of `a` stays in registers while the rows of `b` at its edges pass by. */
#if LANES == FULL
#define MOST 8
#else
#define MOST 2
#endif

#if defined(__clang__)
#define SHUFFLE(v, ...) __builtin_shufflevector(v, v, __VA_ARGS__)
#else
#define SHUFFLE(v, ...) __builtin_shuffle(v, (VECI){__VA_ARGS__})
#endif

/* Sum of all lanes, by halves. */
INLINE REAL KERNEL(total)(VEC v) {
#if LANES == 16
    v += SHUFFLE(v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    v += SHUFFLE(v, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3);
    v += SHUFFLE(v, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1);
    v += SHUFFLE(v, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0);
#elif LANES == 8
    v += SHUFFLE(v, 4, 5, 6, 7, 0, 1, 2, 3);
    v += SHUFFLE(v, 2, 3, 0, 1, 2, 3, 0, 1);
    v += SHUFFLE(v, 1, 0, 1, 0, 1, 0, 1, 0);
#elif LANES == 4
    v += SHUFFLE(v, 2, 3, 0, 1);
    v += SHUFFLE(v, 1, 0, 1, 0);
#elif LANES == 2
    v += SHUFFLE(v, 1, 0);
#endif
    return v[0];
}

/* Columns `width` from `column` on, in `count` vectors; lanes of the last that the one before covers are dropped. */
INLINE void KERNEL(sddmm_range)(const struct sddmm *s, int64_t begin, int64_t end, int64_t head, int64_t column,
                                int64_t width, const int count) {
    const int64_t *rowptr = s->rowptr, stride = s->heads * s->width, last = width - LANES;
    const int64_t final = rowptr[end] - 1;
    const REAL *a = (const REAL *)s->a + head * s->width + column, *b = (const REAL *)s->b + head * s->width + column;
    REAL *out = (REAL *)s->out + head;
    VECI fresh = {0};
    for (int lane = 0; lane < LANES; lane++) fresh[lane] = -(INDEX)(last + lane >= (count - 1) * LANES);
    for (int64_t row = begin; row < end; row++) {
        VEC kept[MOST];
#pragma GCC unroll 8
        for (int v = 0; v < count; v++) kept[v] = LOAD(a + row * stride + (v < count - 1 ? v * LANES : last));
        for (int64_t edge = rowptr[row]; edge < rowptr[row + 1]; edge++) {
            const REAL *source = b + s->col[edge] * stride;
            const REAL *next = b + s->col[edge + s->ahead < final ? edge + s->ahead : final] * stride;
            VEC product = (VEC)((VECI)(kept[count - 1] * LOAD(source + last)) & fresh);
#pragma GCC unroll 8
            for (int v = 0; v < count; v++) {
                if (s->ahead && v * sizeof(VEC) % 64 == 0) __builtin_prefetch(next + v * LANES);
                if (v < count - 1) product += kept[v] * LOAD(source + v * LANES);
            }
            const REAL score = KERNEL(total)(product);
            out[edge * s->heads] = column ? out[edge * s->heads] + score : score;
        }
    }
}

#define RANGE(n) KERNEL(sddmm_range)(s, begin, end, head, from, to - from, n)

static void KERNEL(sddmm)(const void *task, int64_t begin, int64_t end) {
    const struct sddmm *s = (const struct sddmm *)task;
    for (int64_t head = 0; head < s->heads; head++) {
        EACH_RANGE(s->width)
    }
}
#undef RANGE
#undef MOST
#undef SHUFFLE
