/* Softmax over each row's edges. A row's scores [degree, heads] are read as one run of vectors; after `period`
 * vectors every lane meets the same head again, so one vector per phase collects maxima and sums of its lanes. */
#include "exp.h"

INLINE int64_t KERNEL(period)(int64_t heads) {
    int64_t shared = LANES; /* the greatest common divisor with a power of two */
    while (heads % shared) shared /= 2;
    return heads / shared;
}

INLINE VEC KERNEL(load_some)(const REAL *from, int64_t count, REAL rest) {
    VEC v = (VEC){0} + rest;
    if (count >= LANES) return LOAD(from);
    memcpy(&v, from, count * sizeof(REAL));
    return v;
}

INLINE void KERNEL(store_some)(REAL *to, int64_t count, VEC v) {
    if (count >= LANES) STORE(to, v);
    else memcpy(to, &v, count * sizeof(REAL));
}

/* Combine the lanes that stand for the same head, in all phases, by maximum or by sum. */
INLINE void KERNEL(combine)(VEC *phase, int64_t period, int64_t heads, const int by_max) {
    REAL *lane = (REAL *)phase;
    for (int64_t k = heads, head = 0; k < period * LANES; k++, head = head + 1 < heads ? head + 1 : 0) {
        if (by_max) lane[head] = lane[k] > lane[head] ? lane[k] : lane[head];
        else lane[head] += lane[k];
    }
    for (int64_t k = heads; k < period * LANES; k++) lane[k] = lane[k - heads];
}

static void KERNEL(softmax)(const void *task, int64_t begin, int64_t end) {
    const struct softmax *s = (const struct softmax *)task;
    const int64_t heads = s->heads, period = KERNEL(period)(heads);
    VEC top[SOFTMAX_HEADS], sum[SOFTMAX_HEADS];
    for (int64_t row = begin; row < end; row++) {
        const int64_t count = (s->rowptr[row + 1] - s->rowptr[row]) * heads;
        const REAL *score = (const REAL *)s->in + s->rowptr[row] * heads;
        REAL *out = (REAL *)s->out + s->rowptr[row] * heads;
        for (int64_t p = 0; p < period; p++) {
            top[p] = (VEC){0} - (REAL)INFINITY;
            sum[p] = (VEC){0};
        }
        for (int64_t k = 0, p = 0; k < count; k += LANES, p = p + 1 < period ? p + 1 : 0) {
            const VEC v = KERNEL(load_some)(score + k, count - k, -(REAL)INFINITY);
            const VECI higher = v > top[p];
            top[p] = (VEC)((higher & (VECI)v) | (~higher & (VECI)top[p]));
        }
        KERNEL(combine)(top, period, heads, 1);
        for (int64_t k = 0, p = 0; k < count; k += LANES, p = p + 1 < period ? p + 1 : 0) {
            const VEC v = KERNEL(exp)(KERNEL(load_some)(score + k, count - k, -(REAL)INFINITY) - top[p]);
            KERNEL(store_some)(out + k, count - k, v);
            sum[p] += v;
        }
        KERNEL(combine)(sum, period, heads, 0);
        for (int64_t p = 0; p < period; p++) sum[p] = 1 / sum[p];
        for (int64_t k = 0, p = 0; k < count; k += LANES, p = p + 1 < period ? p + 1 : 0)
            KERNEL(store_some)(out + k, count - k, KERNEL(load_some)(out + k, count - k, 0) * sum[p]);
    }
}

static void KERNEL(softmax_backward)(const void *task, int64_t begin, int64_t end) {
    const struct softmax *s = (const struct softmax *)task;
    const int64_t heads = s->heads, period = KERNEL(period)(heads);
    VEC sum[SOFTMAX_HEADS];
    for (int64_t row = begin; row < end; row++) {
        const int64_t count = (s->rowptr[row + 1] - s->rowptr[row]) * heads;
        const REAL *alpha = (const REAL *)s->in + s->rowptr[row] * heads;
        const REAL *grad = (const REAL *)s->grad + s->rowptr[row] * heads;
        REAL *out = (REAL *)s->out + s->rowptr[row] * heads;
        for (int64_t p = 0; p < period; p++) sum[p] = (VEC){0};
        for (int64_t k = 0, p = 0; k < count; k += LANES, p = p + 1 < period ? p + 1 : 0)
            sum[p] += KERNEL(load_some)(alpha + k, count - k, 0) * KERNEL(load_some)(grad + k, count - k, 0);
        KERNEL(combine)(sum, period, heads, 0);
        for (int64_t k = 0, p = 0; k < count; k += LANES, p = p + 1 < period ? p + 1 : 0) {
            const VEC g = KERNEL(load_some)(grad + k, count - k, 0) - sum[p];
            KERNEL(store_some)(out + k, count - k, KERNEL(load_some)(alpha + k, count - k, 0) * g);
        }
    }
}
