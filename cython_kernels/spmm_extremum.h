/* Min and max with the edge each entry came from: the first of equals, and the first NaN if there is one. */
#define MOST (LANES == FULL ? 4 : 2)

INLINE void KERNEL(extremum_range)(const struct spmm *s, int64_t begin, int64_t end, int64_t column, int64_t width,
                                   const int count, const int weighted, const int min) {
    const int64_t *rowptr = s->rowptr, stride = s->width, last = width - LANES, final = rowptr[end] - 1;
    const int32_t *col = s->col;
    const REAL *x = (const REAL *)s->x + column, *value = (const REAL *)s->value;
    REAL *out = (REAL *)s->out + column;
    int32_t *arg_out = s->arg_out + column;
    for (int64_t row = begin; row < end; row++) {
        VEC best[4] = {{0}};
        VECI from[4];
        int64_t edge = rowptr[row];
        const int64_t stop = rowptr[row + 1];
#pragma GCC unroll 4
        for (int v = 0; v < count; v++) {
            from[v] = (VECI){0} + (INDEX)(edge < stop ? edge : -1);
            if (edge < stop) {
                const VEC first = LOAD(x + col[edge] * stride + (v < count - 1 ? v * LANES : last));
                best[v] = weighted ? value[edge] * first : first;
            }
        }
        for (edge++; edge < stop; edge++) {
            const REAL *source = x + col[edge] * stride;
            const REAL *next = x + col[edge + s->ahead < final ? edge + s->ahead : final] * stride;
            const REAL weight = weighted ? value[edge] : 1;
            const VECI here = (VECI){0} + (INDEX)edge;
#pragma GCC unroll 4
            for (int v = 0; v < count; v++) {
                if (s->ahead && v * sizeof(VEC) % 64 == 0) __builtin_prefetch(next + v * LANES);
                VEC message = LOAD(source + (v < count - 1 ? v * LANES : last));
                if (weighted) message *= weight;
                const VECI kept = min ? best[v] <= message : best[v] >= message;
                const VECI take = ~kept & (best[v] == best[v]); /* not kept: better, or NaN on either side */
                best[v] = (VEC)((take & (VECI)message) | (~take & (VECI)best[v]));
                from[v] = (take & here) | (~take & from[v]);
            }
        }
#pragma GCC unroll 4
        for (int v = 0; v < count; v++) {
            const int64_t at = row * stride + (v < count - 1 ? v * LANES : last);
            STORE(out + at, best[v]);
            for (int lane = 0; lane < LANES; lane++) arg_out[at + lane] = (int32_t)from[v][lane];
        }
    }
}

#define CASE(n)                                                                                                   \
    case n:                                                                                                       \
        if (s->value && s->min) KERNEL(extremum_range)(s, begin, end, from, to - from, n, 1, 1);                  \
        else if (s->value) KERNEL(extremum_range)(s, begin, end, from, to - from, n, 1, 0);                       \
        else if (s->min) KERNEL(extremum_range)(s, begin, end, from, to - from, n, 0, 1);                         \
        else KERNEL(extremum_range)(s, begin, end, from, to - from, n, 0, 0);                                     \
        break;

static void KERNEL(spmm_extremum)(const void *task, int64_t begin, int64_t end) {
    const struct spmm *s = (const struct spmm *)task;
    const int64_t vectors = (s->width + LANES - 1) / LANES, ranges = (vectors + MOST - 1) / MOST;
    for (int64_t range = 0; range < ranges; range++) {
        const int64_t first = vectors * range / ranges, next = vectors * (range + 1) / ranges;
        const int64_t from = first * LANES, to = next * LANES < s->width ? next * LANES : s->width;
        switch (next - first) {
            CASE(1)
            CASE(2)
#if LANES == FULL
            CASE(3)
            CASE(4)
#endif
        }
    }
}
#undef CASE
#undef MOST
