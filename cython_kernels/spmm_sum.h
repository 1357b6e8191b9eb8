/* Sum and mean: the accumulators of a column range stay in registers while a row's edges are walked. */
#if LANES == FULL
#define MOST 8 /* accumulators: half of the registers of SSE and AVX2 */
#else
#define MOST 2 /* narrower vectors only serve rows that are shorter than two full ones */
#endif

#define TURN 1024 /* edges */
#define PREFETCHED 256 /* bytes of a row for each prefetch: the processor fetches lines that follow by itself */

/* Columns `width` of x from `column` on, in `count` vectors; the last one ends at the range's end and so may
 * overlap the one before. Few vectors leave registers for several edges at a time, which hides the latency of adds. */
INLINE void KERNEL(sum_range)(const struct spmm *s, int64_t begin, int64_t end, int64_t head, int64_t column,
                              int64_t width, const int count, const int weighted) {
    const int edges = count == 1 ? 4 : count == 2 ? 2 : 1;
    const int64_t *rowptr = s->rowptr, stride = s->heads * s->width, last = width - LANES;
    const int32_t *col = s->col;
    const REAL *x = (const REAL *)s->x + head * s->width + column, *value = (const REAL *)s->value;
    REAL *out = (REAL *)s->out + head * s->width + column;
    const int64_t final = rowptr[end] - 1, step = s->heads;
    if (weighted) value += head;
    for (int64_t row = begin; row < end; row++) {
        VEC sum[4][MOST] = {{{0}}};
        int64_t edge = rowptr[row];
        const int64_t stop = rowptr[row + 1];
        for (; edge + edges <= stop; edge += edges)
#pragma GCC unroll 4
            for (int k = 0; k < edges; k++) {
                const REAL *source = x + col[edge + k] * stride;
                const int64_t ahead = edge + k + s->ahead < final ? edge + k + s->ahead : final;
                const REAL *next = x + col[ahead] * stride;
                const REAL weight = weighted ? value[(edge + k) * step] : 1;
#pragma GCC unroll 8
                for (int v = 0; v < count; v++) {
                    const int64_t at = v < count - 1 ? v * LANES : last;
                    if (s->ahead && v * sizeof(VEC) % PREFETCHED == 0) __builtin_prefetch(next + v * LANES);
                    sum[k][v] += weighted ? weight * LOAD(source + at) : LOAD(source + at);
                }
            }
        for (; edge < stop; edge++) {
            const REAL *source = x + col[edge] * stride;
            const REAL weight = weighted ? value[edge * step] : 1;
#pragma GCC unroll 8
            for (int v = 0; v < count; v++) {
                const int64_t at = v < count - 1 ? v * LANES : last;
                sum[0][v] += weighted ? weight * LOAD(source + at) : LOAD(source + at);
            }
        }
        const int64_t degree = stop - rowptr[row];
        const REAL scale = s->mean && degree ? 1 / (REAL)degree : 1;
#pragma GCC unroll 8
        for (int v = 0; v < count; v++) {
            VEC total = sum[0][v];
#pragma GCC unroll 4
            for (int k = 1; k < edges; k++) total += sum[k][v];
            STORE(out + row * stride + (v < count - 1 ? v * LANES : last), total * scale);
        }
    }
}

#define RANGE(n)                                                                                                  \
    if (s->value) KERNEL(sum_range)(s, row, stop, head, from, to - from, n, 1);                                   \
    else KERNEL(sum_range)(s, row, stop, head, from, to - from, n, 0)

/* Heads and ranges walk the same edges, so they take turns while the edges of a few rows are in the cache. */
static void KERNEL(spmm_sum)(const void *task, int64_t begin, int64_t end) {
    const struct spmm *s = (const struct spmm *)task;
    for (int64_t row = begin, stop; row < end; row = stop) {
        for (stop = row + 1; stop < end && s->rowptr[stop] - s->rowptr[row] < TURN; stop++) {}
        for (int64_t head = 0; head < s->heads; head++) {
            EACH_RANGE(s->width)
        }
    }
}
#undef RANGE
#undef MOST
#undef TURN
#undef PREFETCHED
