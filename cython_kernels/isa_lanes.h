/* One copy of TEMPLATE: its vector types, unaligned loads and stores, and the template itself; used by isa.h only. */
typedef REAL VEC __attribute__((vector_size(LANES * sizeof(REAL))));
typedef INDEX VECI __attribute__((vector_size(LANES * sizeof(REAL))));

INLINE VEC KERNEL(load)(const REAL *from) {
    VEC v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void KERNEL(store)(REAL *to, VEC v) { memcpy(to, &v, sizeof v); }

#include TEMPLATE
#undef LANES
