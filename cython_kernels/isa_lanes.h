/* One copy of TEMPLATE with its vector types; used by isa.h only. */
typedef REAL VEC __attribute__((vector_size(LANES * sizeof(REAL))));
typedef INDEX VECI __attribute__((vector_size(LANES * sizeof(REAL))));
typedef REAL KERNEL(unaligned) __attribute__((vector_size(LANES * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

#include TEMPLATE
#undef LANES
