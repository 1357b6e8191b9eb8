/* Sum and mean over blocks of columns whose slice of x stays in the second-level cache.
 *
 * x is packed one or two cache lines of features at a time, each a tile of 16 floats or 32 of them in bf16; a thread
 * then walks all its rows block after block, so that gathers hit the cache and only the partial sums stream. Two lines
 * share what a walk costs beside them: reading the edges, and the end of every row that no processor foresees. */
#if LANES == FULL
#define LINE ((int64_t)(64 / sizeof(REAL)))
#define VECTORS (64 / (int)sizeof(VEC))

static void KERNEL(blocked_pack)(const void *task, int64_t begin, int64_t end) {
    const struct blocked *s = (const struct blocked *)task;
    const int64_t tile = s->bf16 ? 2 * LINE : LINE;
    for (int64_t source = begin; source < end; source++)
        for (int64_t l = 0; l < s->lines; l++) {
            const int64_t column = s->column + l * tile, rest = s->width - column, count = rest < tile ? rest : tile;
            REAL *line = (REAL *)s->packed + (source * s->lines + l) * LINE;
            const REAL *x = (const REAL *)s->x + source * s->width + column;
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

INLINE void KERNEL(blocked_rows)(const struct blocked *s, int64_t begin, int64_t end, int64_t block, const int lines,
                                 const int weighted, const int bf16) {
    const int chains = bf16 && VECTORS == 1 ? 4 : 2, edges = chains / lines; /* as many as there are registers for */
    const int vectors = bf16 ? 2 * VECTORS : VECTORS;
    const int64_t tile = vectors * LANES, stride = lines * LINE;
    const int32_t *start = s->start + block * (s->rows + 1);
    const REAL *packed = (const REAL *)s->packed + (block << s->shift) * stride, *value = (const REAL *)s->ordered;
    const int first = block == 0, last = block == s->blocks - 1;
    for (int64_t row = begin; row < end; row++) {
        int32_t edge = start[row];
        const int32_t stop = start[row + 1];
        if (edge == stop && !first && !last) continue;
        VEC sum[4][2 * VECTORS] = {{{0}}}; /* line l of edge k is in sum[k * lines + l] */
        for (; edge + edges <= stop; edge += edges)
#pragma GCC unroll 4
            for (int k = 0; k < chains; k++) {
                const int32_t at = edge + k / lines;
                KERNEL(add_line)(sum[k], packed + s->local[at] * stride + k % lines * LINE,
                                 weighted ? value[at] : 1, weighted, bf16);
            }
        for (; edge < stop; edge++)
#pragma GCC unroll 2
            for (int l = 0; l < lines; l++)
                KERNEL(add_line)(sum[l], packed + s->local[edge] * stride + l * LINE, weighted ? value[edge] : 1,
                                 weighted, bf16);
        const int64_t degree = s->rowptr[row + 1] - s->rowptr[row];
        const REAL scale = last && s->mean && degree ? 1 / (REAL)degree : 1;
#pragma GCC unroll 2
        for (int l = 0; l < lines; l++) {
            const int64_t column = s->column + l * tile, rest = s->width - column;
            REAL *kept = (REAL *)s->sums + (row * lines + l) * tile;
#pragma GCC unroll 16
            for (int v = 0; v < vectors; v++) {
#pragma GCC unroll 4
                for (int k = 1; k < edges; k++) sum[l][v] += sum[k * lines + l][v];
                if (!first) sum[l][v] += LOAD(kept + v * LANES);
                if (last) sum[l][v] *= scale;
                else STORE(kept + v * LANES, sum[l][v]);
            }
            if (!last) continue;
            REAL *out = (REAL *)s->out + row * s->width + column;
            if (rest >= tile) memcpy(out, sum[l], vectors * sizeof(VEC));
            else memcpy(out, sum[l], rest * sizeof(REAL));
        }
    }
}

#define ROWS(lines)                                                                                               \
    if (s->ordered && s->bf16) KERNEL(blocked_rows)(s, begin, end, block, lines, 1, 1);                           \
    else if (s->ordered) KERNEL(blocked_rows)(s, begin, end, block, lines, 1, 0);                                 \
    else if (s->bf16) KERNEL(blocked_rows)(s, begin, end, block, lines, 0, 1);                                    \
    else KERNEL(blocked_rows)(s, begin, end, block, lines, 0, 0)

static void KERNEL(blocked_sum)(const void *task, int64_t begin, int64_t end) {
    const struct blocked *s = (const struct blocked *)task;
    for (int64_t block = 0; block < s->blocks; block++)
        if (s->lines == 2) { ROWS(2); }
        else { ROWS(1); }
}
#undef ROWS
#undef LINE
#undef VECTORS
#endif
