/* Sums lines of a small table: nothing but the loads that a kernel needs for every edge. */
#define VECTORS (64 / (int)sizeof(VEC))

static void KERNEL(gather)(const void *task, int64_t begin, int64_t end) {
    const struct gather *g = (const struct gather *)task;
    VEC sum[4 * VECTORS] = {{0}}; /* of four edges, so that no addition waits for the one before */
    for (int64_t edge = begin; edge < end; edge += 4)
#pragma GCC unroll 4
        for (int e = 0; e < 4; e++) {
            const char *line = g->table + 64 * (int64_t)g->line[edge + e];
#pragma GCC unroll 64
            for (int v = 0; v < VECTORS; v++) sum[e * VECTORS + v] += LOAD((const REAL *)line + v * LANES);
        }
    for (int v = 0; v < VECTORS; v++)
        STORE((REAL *)(g->sums + begin / g->share * 64) + v * LANES,
              sum[v] + sum[VECTORS + v] + sum[2 * VECTORS + v] + sum[3 * VECTORS + v]);
}
#undef VECTORS
