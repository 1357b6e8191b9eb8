/* Min and max with the edge each entry came from: the first of equals, and the first NaN if there is one. */
#define MOST (LANES == FULL ? 4 : 2)

/* Replace `best`, and the edges it came `from`, by a later message where that is better, or the first NaN. */
INLINE void KERNEL(take)(VEC *best, VECI *from, VEC message, VECI edge, const int min) {
#if defined(__AVX512F__) && VECTOR_BYTES == 64 && FULL == 16 && LANES == 16
    const __m512 old = (__m512)*best, new = (__m512)message;
    const __mmask16 number = _mm512_cmp_ps_mask(old, old, _CMP_ORD_Q);
    const __mmask16 better = min ? _mm512_mask_cmp_ps_mask(number, old, new, _CMP_NLE_UQ)
                                 : _mm512_mask_cmp_ps_mask(number, old, new, _CMP_NGE_UQ);
    *best = (VEC)_mm512_mask_mov_ps(old, better, new);
    *from = (VECI)_mm512_mask_mov_epi32((__m512i)*from, better, (__m512i)edge);
#elif defined(__AVX512F__) && VECTOR_BYTES == 64 && FULL == 8 && LANES == 8
    const __m512d old = (__m512d)*best, new = (__m512d)message;
    const __mmask8 number = _mm512_cmp_pd_mask(old, old, _CMP_ORD_Q);
    const __mmask8 better = min ? _mm512_mask_cmp_pd_mask(number, old, new, _CMP_NLE_UQ)
                                : _mm512_mask_cmp_pd_mask(number, old, new, _CMP_NGE_UQ);
    *best = (VEC)_mm512_mask_mov_pd(old, better, new);
    *from = (VECI)_mm512_mask_mov_epi64((__m512i)*from, better, (__m512i)edge);
#else
    const VECI kept = min ? *best <= message : *best >= message;
    const VECI better = ~kept & (*best == *best); /* not kept: better, or NaN on either side */
    *best = (VEC)((better & (VECI)message) | (~better & (VECI)*best));
    *from = (better & edge) | (~better & *from);
#endif
}

/* Where the messages of edges come from: weighted or not, from the column of a graph's edge or of a block's. */
struct KERNEL(messages) {
    const REAL *x, *value;
    const int32_t *col;
    const uint16_t *local;
    int64_t stride, last, ahead, final;
    int weighted, blocked;
};

INLINE VEC KERNEL(message)(const struct KERNEL(messages) *m, int64_t edge, int v, const int count) {
    const int64_t source = m->blocked ? m->local[edge] : m->col[edge];
    const VEC message = LOAD(m->x + source * m->stride + (v < count - 1 ? v * LANES : m->last));
    return m->weighted ? m->value[edge] * message : message;
}

/* The best of a row's edges start..stop in `count` vectors, and which they were; none leave 0 and -1. Few vectors
 * leave registers to walk both halves of the edges at once, which hides the latency of comparing. */
INLINE void KERNEL(extremum_row)(const struct KERNEL(messages) *m, int64_t start, int64_t stop, VEC *best,
                                 VECI *from, const int count, const int min) {
    const int halves = count <= 2 ? 2 : 1;
    const int64_t half = (stop - start) / halves;
    VEC late[2];
    VECI late_from[2];
#pragma GCC unroll 4
    for (int v = 0; v < count; v++) {
        best[v] = start < stop ? KERNEL(message)(m, start, v, count) : (VEC){0};
        from[v] = (VECI){0} + (INDEX)(start < stop ? start : -1);
        if (halves == 2) {
            late[v] = half ? KERNEL(message)(m, start + half, v, count) : best[v];
            late_from[v] = (VECI){0} + (INDEX)(start + half);
        }
    }
    for (int64_t edge = start + 1; edge < start + half; edge++) {
        if (m->ahead) {
            const REAL *next = m->x + m->col[edge + m->ahead < m->final ? edge + m->ahead : m->final] * m->stride;
#pragma GCC unroll 4
            for (int v = 0; v < count; v += 64 / (int)sizeof(VEC)) __builtin_prefetch(next + v * LANES);
        }
#pragma GCC unroll 4
        for (int v = 0; v < count; v++) {
            KERNEL(take)(&best[v], &from[v], KERNEL(message)(m, edge, v, count), (VECI){0} + (INDEX)edge, min);
            if (halves == 2)
                KERNEL(take)(&late[v], &late_from[v], KERNEL(message)(m, edge + half, v, count),
                             (VECI){0} + (INDEX)(edge + half), min);
        }
    }
#pragma GCC unroll 4
    for (int v = 0; halves == 2 && v < count; v++) {
        KERNEL(take)(&best[v], &from[v], late[v], late_from[v], min);
        if (start + 2 * half < stop)
            KERNEL(take)(&best[v], &from[v], KERNEL(message)(m, stop - 1, v, count),
                         (VECI){0} + (INDEX)(stop - 1), min);
    }
}

INLINE void KERNEL(extremum_range)(const struct spmm *s, int64_t begin, int64_t end, int64_t column, int64_t width,
                                   const int count, const int weighted, const int min) {
    const struct KERNEL(messages) m = {
        .x = (const REAL *)s->x + column, .value = (const REAL *)s->value, .col = s->col, .stride = s->width,
        .last = width - LANES, .ahead = s->ahead, .final = s->rowptr[end] - 1, .weighted = weighted};
    for (int64_t row = begin; row < end; row++) {
        VEC best[4];
        VECI from[4];
        KERNEL(extremum_row)(&m, s->rowptr[row], s->rowptr[row + 1], best, from, count, min);
#pragma GCC unroll 4
        for (int v = 0; v < count; v++) {
            const int64_t at = row * s->width + column + (v < count - 1 ? v * LANES : m.last);
            STORE((REAL *)s->out + at, best[v]);
            if (sizeof(INDEX) == sizeof(int32_t)) memcpy(s->arg_out + at, &from[v], sizeof(VECI));
            else
                for (int lane = 0; lane < LANES; lane++) s->arg_out[at + lane] = (int32_t)from[v][lane];
        }
    }
}

#define RANGE(n)                                                                                                  \
    if (s->value && s->min) KERNEL(extremum_range)(s, begin, end, from, to - from, n, 1, 1);                      \
    else if (s->value) KERNEL(extremum_range)(s, begin, end, from, to - from, n, 1, 0);                           \
    else if (s->min) KERNEL(extremum_range)(s, begin, end, from, to - from, n, 0, 1);                             \
    else KERNEL(extremum_range)(s, begin, end, from, to - from, n, 0, 0)

static void KERNEL(spmm_extremum)(const void *task, int64_t begin, int64_t end) {
    const struct spmm *s = (const struct spmm *)task;
    EACH_RANGE(s->width)
}
#undef RANGE
#undef MOST
