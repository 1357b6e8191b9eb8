/* exp of every lane within 2 units in the last place: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2] (Cody & Waite). */
#ifndef GNNBENCH_EXP_H
#define GNNBENCH_EXP_H
/* Cephes' minimax coefficients of (exp(r) - 1 - r) / r^2, and Taylor's, enough for double. */
static const float EXP_FLOAT[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                  4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
static const double EXP_DOUBLE[] = {1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800,
                                    1. / 362880,     1. / 40320,     1. / 5040,     1. / 720,
                                    1. / 120,        1. / 24,        1. / 6,        1. / 2};
#endif

INLINE VEC KERNEL(exp)(VEC x) {
    const int single = sizeof(REAL) == 4;
    const REAL least = single ? (REAL)-87.336544 : (REAL)-708.39641853226408;
    const REAL most = single ? (REAL)88.722839 : (REAL)709.78271289338397;
    /* Adding this rounds to an integer, which then stands in the lowest bits. */
    const REAL round = single ? (REAL)12582912 : (REAL)6755399441055744;
    const VECI within = (x >= least) & (x <= most), under = x < least; /* neither where x is NaN or too large */
    const VEC t = x * (REAL)1.44269504088896340736 + round;
    const VEC n = t - round;
    const VEC r = x - n * (single ? (REAL)0.693359375 : (REAL)6.93145751953125e-1) -
                  n * (single ? (REAL)-2.12194440e-4 : (REAL)1.42860682030941723212e-6);
    VEC p = (VEC){0} + (single ? (REAL)EXP_FLOAT[0] : (REAL)EXP_DOUBLE[0]);
#pragma GCC unroll 12
    for (int k = 1; k < (single ? 6 : 12); k++) p = p * r + (single ? (REAL)EXP_FLOAT[k] : (REAL)EXP_DOUBLE[k]);
    p = p * r * r + r + 1;
    const VECI result = (VECI)p + ((within & (VECI)t) << (single ? 23 : 52));
    return (VEC)((within & result) | (~within & ~under & (VECI)(x + (REAL)INFINITY)));
}
