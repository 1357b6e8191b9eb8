/* FusedMM (Rahman et al. 2021) over rows of edges, a chunk at a time: scores, a function of them, weighted sums. */
#include "attention_chunk.h"

/* tanh of |s| < 0.625 as Cephes has it, where 1 - exp(-2|s|) cancels. */
INLINE VEC KERNEL(small_tanh)(VEC s) {
    const VEC z = s * s;
    const VEC p = (z * (REAL)-0.964399179425052238628 - (REAL)99.2877231001918586564) * z - (REAL)1614.68768441708447952;
    const VEC q = ((z + (REAL)112.811678491632931402) * z + (REAL)2235.48839060100448583) * z +
                  (REAL)4844.06305325125486048;
    return s + s * z * p / q;
}

/* Turns scores into values of the function, and gives its derivatives. */
INLINE void KERNEL(apply)(int fn, int64_t count, REAL *score, REAL *derivative) {
    for (int64_t e = 0; e < count; e += LANES) {
        const VEC s = LOAD(score + e), one = (VEC){0} + 1;
        VEC value = s, slope = one;
        if (fn == EXP) value = slope = KERNEL(exp)(s);
        else if (fn == LEAKY_RELU) {
            slope = KERNEL(chosen)(s > 0, one, one * (REAL)LEAKY_SLOPE);
            value = slope * s;
        } else if (fn != IDENTITY) { /* by exp of what is never positive, so that nothing overflows or cancels */
            const VEC size = KERNEL(chosen)(s < 0, -s, s);
            const VEC power = KERNEL(exp)(size * (REAL)(fn == TANH ? -2 : -1)), half = 1 / (1 + power);
            slope = power * half * half;
            if (fn == SIGMOID) value = KERNEL(chosen)(s < 0, power, one) * half;
            else {
                const VEC large = (1 - power) * half;
                slope *= 4;
                value = KERNEL(chosen)(size < (REAL)0.625, KERNEL(small_tanh)(s),
                                       KERNEL(chosen)(s < 0, -large, large));
            }
        }
        STORE(score + e, value);
        STORE(derivative + e, slope);
    }
}

static void KERNEL(fusedmm)(const void *task, int64_t begin, int64_t end) {
    const struct fusedmm *s = (const struct fusedmm *)task;
    const int64_t width = s->width, stride = s->heads * width;
    REAL weight[CHUNK], derivative[CHUNK], product[CHUNK];
    struct chunk edges;
    for (int64_t row = begin; row < end; row++) {
        memset((REAL *)s->out + row * stride, 0, stride * sizeof(REAL));
        for (int64_t edge = s->rowptr[row]; edge < s->rowptr[row + 1]; edge += CHUNK) {
            edges.count = s->rowptr[row + 1] - edge < CHUNK ? s->rowptr[row + 1] - edge : CHUNK;
            memcpy(edges.col, s->col + edge, edges.count * sizeof(int32_t));
            for (int64_t e = edges.count; e % LANES; e++) edges.col[e] = edges.col[e - 1];
            for (int64_t column = 0; column < stride; column += width) {
                const int64_t at = row * stride + column;
                const REAL *mine = (const REAL *)s->mine + at, *theirs = (const REAL *)s->theirs + column;
                REAL *out = (REAL *)s->out + at;
                KERNEL(dots)(&edges, mine, theirs, stride, width, weight);
                KERNEL(apply)(s->fn, edges.count, weight, derivative);
                if (s->my_grad) {
                    KERNEL(dots)(&edges, (const REAL *)s->my_grad + at, theirs, stride, width, product);
                } else if (s->their_grad) {
                    const REAL *their_grad = (const REAL *)s->their_grad + column;
                    KERNEL(dots)(&edges, mine, their_grad, stride, width, product);
                    KERNEL(add)(&edges, weight, their_grad, stride, width, out);
                }
                if (s->my_grad || s->their_grad)
                    for (int64_t e = 0; e < edges.count; e++) weight[e] = derivative[e] * product[e];
                KERNEL(add)(&edges, weight, theirs, stride, width, out);
            }
        }
    }
}
