/* Sum and mean over blocks of columns whose slice of x stays in the second-level cache.
 *
 * x is packed one cache line of features (a tile) at a time, 16 floats or 32 of them in bf16; a thread then walks all
 * its rows block after block, so that gathers hit the cache and only the partial sums stream. */
#if LANES == FULL
#define LINE ((int64_t)(64 / sizeof(REAL)))
#define VECTORS (64 / (int)sizeof(VEC))

static void KERNEL(blocked_pack)(const void *task, int64_t begin, int64_t end) {
    const struct blocked *s = (const struct blocked *)task;
    const int64_t tile = s->bf16 ? 2 * LINE : LINE, rest = s->width - s->column, count = rest < tile ? rest : tile;
    for (int64_t source = begin; source < end; source++) {
        REAL *line = (REAL *)s->packed + source * LINE;
        const REAL *x = (const REAL *)s->x + source * s->width + s->column;
        if (s->bf16) KERNEL(bf16_line)((const float *)x, count, (uint32_t *)line);
        else if (count == LINE) memcpy(line, x, 64);
        else
            for (int64_t k = 0; k < LINE; k++) line[k] = k < count ? x[k] : 0;
    }
}

/* Weights in the order of the plan: a row's edges to one block are neighbours in both orders. */
static void KERNEL(blocked_order)(const void *task, int64_t begin, int64_t end) {
    const struct blocked *s = (const struct blocked *)task;
    for (int64_t row = begin; row < end; row++) {
        const REAL *value = (const REAL *)s->value + s->rowptr[row];
        for (int64_t block = 0; block < s->blocks; block++) {
            const int32_t *start = s->start + block * (s->rows + 1) + row;
            for (int32_t edge = start[0]; edge < start[1]; edge++) ((REAL *)s->ordered)[edge] = *value++;
        }
    }
}

INLINE void KERNEL(blocked_rows)(const struct blocked *s, int64_t begin, int64_t end, int64_t block,
                                 const int weighted, const int bf16) {
    const int vectors = bf16 ? 2 * VECTORS : VECTORS;
    const int64_t tile = vectors * LANES, rest = s->width - s->column, count = rest < tile ? rest : tile;
    const int32_t *start = s->start + block * (s->rows + 1);
    const REAL *packed = (const REAL *)s->packed + (block << s->shift) * LINE, *value = (const REAL *)s->ordered;
    const int first = block == 0, last = block == s->blocks - 1;
    for (int64_t row = begin; row < end; row++) {
        REAL *kept = (REAL *)s->sums + row * tile;
        int32_t edge = start[row];
        const int32_t stop = start[row + 1];
        if (edge == stop && !first && !last) continue;
        VEC sum[2][2 * VECTORS] = {{{0}}};
        for (; edge + 2 <= stop; edge += 2)
#pragma GCC unroll 2
            for (int k = 0; k < 2; k++)
                KERNEL(add_line)(sum[k], packed + s->local[edge + k] * LINE, weighted ? value[edge + k] : 1,
                                 weighted, bf16);
        if (edge < stop)
            KERNEL(add_line)(sum[0], packed + s->local[edge] * LINE, weighted ? value[edge] : 1, weighted, bf16);
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++) {
            sum[0][v] += sum[1][v];
            if (!first) sum[0][v] += LOAD(kept + v * LANES);
        }
        if (!last) {
#pragma GCC unroll 16
            for (int v = 0; v < vectors; v++) STORE(kept + v * LANES, sum[0][v]);
            continue;
        }
        const int64_t degree = s->rowptr[row + 1] - s->rowptr[row];
        const REAL scale = s->mean && degree ? 1 / (REAL)degree : 1;
        REAL *out = (REAL *)s->out + row * s->width + s->column;
#pragma GCC unroll 16
        for (int v = 0; v < vectors; v++) sum[0][v] *= scale;
        if (count == tile) memcpy(out, sum[0], vectors * sizeof(VEC));
        else memcpy(out, sum[0], count * sizeof(REAL));
    }
}

static void KERNEL(blocked_sum)(const void *task, int64_t begin, int64_t end) {
    const struct blocked *s = (const struct blocked *)task;
    for (int64_t block = 0; block < s->blocks; block++)
        if (s->ordered && s->bf16) KERNEL(blocked_rows)(s, begin, end, block, 1, 1);
        else if (s->ordered) KERNEL(blocked_rows)(s, begin, end, block, 1, 0);
        else if (s->bf16) KERNEL(blocked_rows)(s, begin, end, block, 0, 1);
        else KERNEL(blocked_rows)(s, begin, end, block, 0, 0);
}
#undef LINE
#undef VECTORS
#endif
