/* Random numbers by counting: the n-th of a stream is a function of the stream's key and of n alone. */
#ifndef GNNBENCH_RANDOM_H
#define GNNBENCH_RANDOM_H

#include <stdint.h>

/* A bijection that leaves no trace of patterns in x: the 13th variant of Stafford 2011, "Better bit mixing". */
static inline uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The same of 32 bits, which vectors hold twice as many of: Wellons 2018, `lowbias32`. */
static inline __attribute__((always_inline)) uint32_t mixed(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

/* The next number of a stream: SplitMix64 of Steele, Lea and Flood 2014, "Fast splittable generators". */
static inline uint64_t draw(uint64_t *stream) { return mix(*stream += 0x9e3779b97f4a7c15u); }

/* One of 0 to n - 1, each equally likely: Lemire 2019, "Fast random integer generation in an interval". */
static inline uint64_t draw_below(uint64_t *stream, uint64_t n) {
    unsigned __int128 product = (unsigned __int128)draw(stream) * n;
    if ((uint64_t)product < n) {
        const uint64_t least = -n % n;
        while ((uint64_t)product < least) product = (unsigned __int128)draw(stream) * n;
    }
    return (uint64_t)(product >> 64);
}

/* One of the 2^53 middles of the intervals that [0, 1] is cut into, so that neither end is among them. */
static inline double draw_unit(uint64_t *stream) { return ((double)(draw(stream) >> 11) + 0.5) * 0x1p-53; }

#endif
