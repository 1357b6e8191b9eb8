/* The numbers per edge and head of a chunk, always in the longest vectors, which every copy of the rest calls. */
static REAL WIDEST(soften)(REAL *score, REAL *positive, int64_t count, REAL slope, REAL *top, REAL *sum,
                            REAL *positive_sum);
static REAL WIDEST(weigh)(REAL *score, REAL *grad, const REAL *top, const REAL *delta, const REAL *kept,
                           int64_t count, REAL slope);
static void WIDEST(number)(uint32_t *hash, int64_t count, uint32_t low);
static void WIDEST(draw)(const struct attention *s, const struct chunk *edges, int64_t head, REAL *kept);

#if LANES == FULL
/* The first `count` lanes; what lies beyond a chunk's edges was never written. */
INLINE VECI KERNEL(within)(int64_t count) {
    VECI lane;
    for (int k = 0; k < LANES; k++) lane[k] = k;
    return lane < (INDEX)count;
}

INLINE REAL KERNEL(reduced)(VEC v, const int by_max) {
    REAL lane[LANES];
    memcpy(lane, &v, sizeof v);
    for (int half = LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++) {
            if (by_max) lane[k] = lane[k] > lane[k + half] ? lane[k] : lane[k + half];
            else lane[k] += lane[k + half];
        }
    return lane[0];
}

/* Online softmax (Milakov & Gimelshein 2018): scores become exp(leaky_relu(score) - top) with the maximum so far.
 * Where wanted, `positive` keeps those of positive scores. Returns what earlier weights are to be multiplied by. */
static REAL KERNEL(soften)(REAL *score, REAL *positive, int64_t count, REAL slope, REAL *top, REAL *sum,
                           REAL *positive_sum) {
    VEC most = (VEC){0} - (REAL)INFINITY, total = {0}, positive_total = {0};
    for (int64_t e = 0; e < count; e += LANES) {
        VEC v = LOAD(score + e);
        if (positive) STORE(positive + e, v);
        v = KERNEL(chosen)(v > 0, v, v * slope);
        v = KERNEL(chosen)(KERNEL(within)(count - e), v, (VEC){0} - (REAL)INFINITY);
        STORE(score + e, v);
        most = KERNEL(chosen)(v > most, v, most);
    }
    const REAL before = *top, higher = KERNEL(reduced)(most, 1);
    if (higher > before) *top = higher;
    const REAL shift = *top > -(REAL)INFINITY ? *top : 0;
    for (int64_t e = 0; e < count; e += LANES) {
        const VEC v = KERNEL(exp)(LOAD(score + e) - shift);
        STORE(score + e, v);
        total += v;
        if (positive) {
            const VEC part = (VEC)((VECI)v & (LOAD(positive + e) > 0));
            STORE(positive + e, part);
            positive_total += part;
        }
    }
    const REAL factor = higher > before ? KERNEL(exp)((VEC){0} + before - *top)[0] : 1;
    *sum = *sum * factor + KERNEL(reduced)(total, 0);
    if (positive) *positive_sum = *positive_sum * factor + KERNEL(reduced)(positive_total, 0);
    return factor;
}

/* Backward of the softmax: scores become weights alpha * kept, and gradients of weights those of scores (Dao et al.
 * 2022, appendix B.4). Returns the sum of the latter. */
static REAL KERNEL(weigh)(REAL *score, REAL *grad, const REAL *top, const REAL *delta, const REAL *kept,
                          int64_t count, REAL slope) {
    VEC total = {0};
    for (int64_t e = 0; e < count; e += LANES) {
        const VEC v = LOAD(score + e);
        const VEC alpha = KERNEL(exp)(KERNEL(chosen)(v > 0, v, v * slope) - LOAD(top + e));
        const VEC weight = kept ? alpha * LOAD(kept + e) : alpha;
        const VEC kept_grad = kept ? LOAD(grad + e) * LOAD(kept + e) : LOAD(grad + e);
        const VEC g = alpha * (kept_grad - LOAD(delta + e)); /* exactly zero where an edge has all the weight */
        const VEC grad_score = KERNEL(chosen)(v > 0, g, g * slope);
        STORE(score + e, weight);
        STORE(grad + e, grad_score);
        total += (VEC)((VECI)grad_score & KERNEL(within)(count - e));
    }
    return KERNEL(reduced)(total, 0);
}

/* Hash a chunk's edge numbers with the low word of the seed. */
static void KERNEL(number)(uint32_t *hash, int64_t count, uint32_t low) {
    for (int64_t e = 0; e < count; e++) hash[e] = mixed(hash[e] ^ low);
}

/* What dropout multiplies the weights by. */
static void KERNEL(draw)(const struct attention *s, const struct chunk *edges, int64_t head, REAL *kept) {
    const uint32_t threshold = s->threshold, high = s->high;
    const REAL scale = (REAL)s->scale;
    for (int64_t e = 0; e < FILLED(edges->count); e++)
        kept[e] = mixed((edges->hash[e] + (uint32_t)head) ^ high) >= threshold ? scale : 0;
}
#endif
