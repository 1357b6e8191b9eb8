/* Min and max over the blocks of spmm_blocked.h: a later block's best entries replace those of the blocks before. */
#if LANES == FULL
#define LINE ((int64_t)(64 / sizeof(REAL)))
#define VECTORS (64 / (int)sizeof(VEC))

INLINE void KERNEL(best_of_block)(const struct blocked *s, int64_t begin, int64_t end, int64_t block,
                                  const int weighted, const int min) {
    const int32_t *start = s->start + block * (s->rows + 1);
    const struct KERNEL(messages) m = {
        .x = (const REAL *)s->packed + (block << s->shift) * LINE, .value = (const REAL *)s->ordered,
        .local = s->local, .stride = LINE, .last = (VECTORS - 1) * LANES, .weighted = weighted, .blocked = 1};
    const int64_t count = s->width - s->column < LINE ? s->width - s->column : LINE;
    for (int64_t row = begin; row < end; row++) {
        REAL *kept = (REAL *)s->sums + row * LINE;
        INDEX *kept_from = (INDEX *)s->from + row * LINE;
        /* The edges of a row are neighbours here and in the graph, where those of the next block follow. */
        const int64_t before = block ? s->seen[row] : s->rowptr[row], edges = start[row + 1] - start[row];
        s->seen[row] = (int32_t)(before + edges);
        if (edges) {
            VEC best[VECTORS];
            VECI from[VECTORS];
            KERNEL(extremum_row)(&m, start[row], start[row + 1], best, from, VECTORS, min);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) {
                from[v] += (INDEX)(before - start[row]);
                if (before > s->rowptr[row]) {
                    VEC old = LOAD(kept + v * LANES);
                    VECI old_from;
                    memcpy(&old_from, kept_from + v * LANES, sizeof(VECI));
                    KERNEL(take)(&old, &old_from, best[v], from[v], min);
                    best[v] = old, from[v] = old_from;
                }
                STORE(kept + v * LANES, best[v]);
                memcpy(kept_from + v * LANES, &from[v], sizeof(VECI));
            }
        }
        if (block < s->blocks - 1) continue;
        const int alone = s->rowptr[row] == s->rowptr[row + 1];
        for (int64_t k = 0; k < count; k++) {
            ((REAL *)s->out)[row * s->width + s->column + k] = alone ? 0 : kept[k];
            s->arg_out[row * s->width + s->column + k] = alone ? -1 : (int32_t)kept_from[k];
        }
    }
}

static void KERNEL(blocked_extremum)(const void *task, int64_t begin, int64_t end) {
    const struct blocked *s = (const struct blocked *)task;
    for (int64_t block = 0; block < s->blocks; block++)
        if (s->ordered && s->min) KERNEL(best_of_block)(s, begin, end, block, 1, 1);
        else if (s->ordered) KERNEL(best_of_block)(s, begin, end, block, 1, 0);
        else if (s->min) KERNEL(best_of_block)(s, begin, end, block, 0, 1);
        else KERNEL(best_of_block)(s, begin, end, block, 0, 0);
}
#undef LINE
#undef VECTORS
#endif
