/* Sum and mean over blocks of columns whose slice of x stays in the second-level cache.
 *
 * x is packed one cache line of features (a tile) at a time; a thread then walks all its rows block after block, so
 * that gathers hit the cache and only the partial sums stream. */
#define TILE ((int64_t)(64 / sizeof(REAL)))
#define VECTORS (64 / (int)sizeof(VEC))

static void KERNEL(blocked_pack)(const void *task, int64_t begin, int64_t end) {
    const struct blocked *s = (const struct blocked *)task;
    const int64_t count = s->width - s->column < TILE ? s->width - s->column : TILE;
    for (int64_t source = begin; source < end; source++) {
        REAL *tile = (REAL *)s->packed + source * TILE;
        const REAL *x = (const REAL *)s->x + source * s->width + s->column;
        if (count == TILE) memcpy(tile, x, 64);
        else
            for (int64_t k = 0; k < TILE; k++) tile[k] = k < count ? x[k] : 0;
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
                                 const int weighted) {
    const int32_t *start = s->start + block * (s->rows + 1);
    const REAL *packed = (const REAL *)s->packed + (block << s->shift) * TILE, *value = (const REAL *)s->ordered;
    const int first = block == 0, last = block == s->blocks - 1;
    const int64_t count = s->width - s->column < TILE ? s->width - s->column : TILE;
    for (int64_t row = begin; row < end; row++) {
        REAL *kept = (REAL *)s->sums + row * TILE;
        int32_t edge = start[row];
        const int32_t stop = start[row + 1];
        if (edge == stop && !first && !last) continue;
        VEC sum[2][VECTORS] = {{{0}}};
        for (; edge + 2 <= stop; edge += 2)
#pragma GCC unroll 2
            for (int k = 0; k < 2; k++) {
                const REAL *source = packed + (int64_t)s->local[edge + k] * TILE;
#pragma GCC unroll 16
                for (int v = 0; v < VECTORS; v++)
                    sum[k][v] += weighted ? value[edge + k] * LOAD(source + v * LANES) : LOAD(source + v * LANES);
            }
        if (edge < stop) {
            const REAL *source = packed + (int64_t)s->local[edge] * TILE;
#pragma GCC unroll 16
            for (int v = 0; v < VECTORS; v++)
                sum[0][v] += weighted ? value[edge] * LOAD(source + v * LANES) : LOAD(source + v * LANES);
        }
#pragma GCC unroll 16
        for (int v = 0; v < VECTORS; v++) {
            sum[0][v] += sum[1][v];
            if (!first) sum[0][v] += LOAD(kept + v * LANES);
        }
        if (!last) {
#pragma GCC unroll 16
            for (int v = 0; v < VECTORS; v++) STORE(kept + v * LANES, sum[0][v]);
            continue;
        }
        const int64_t degree = s->rowptr[row + 1] - s->rowptr[row];
        const REAL scale = s->mean && degree ? 1 / (REAL)degree : 1;
        REAL *out = (REAL *)s->out + row * s->width + s->column;
#pragma GCC unroll 16
        for (int v = 0; v < VECTORS; v++) sum[0][v] *= scale;
        if (count == TILE) memcpy(out, sum[0], 64);
        else memcpy(out, sum[0], count * sizeof(REAL));
    }
}

static void KERNEL(blocked_gather)(const void *task, int64_t begin, int64_t end) {
    const struct blocked *s = (const struct blocked *)task;
    for (int64_t block = 0; block < s->blocks; block++)
        if (s->value) KERNEL(blocked_rows)(s, begin, end, block, 1);
        else KERNEL(blocked_rows)(s, begin, end, block, 0);
}
#undef TILE
#undef VECTORS
