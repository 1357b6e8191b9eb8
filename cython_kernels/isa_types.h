/* Includes TEMPLATE for every element type and every power of two of lanes up to VECTOR_BYTES; used by isa.h only. */
#define REAL float
#define INDEX int32_t
#if VECTOR_BYTES == 64
#define FULL 16
#elif VECTOR_BYTES == 32
#define FULL 8
#else
#define FULL 4
#endif
#define LANES 1
#include "isa_lanes.h"
#define LANES 2
#include "isa_lanes.h"
#define LANES 4
#include "isa_lanes.h"
#if VECTOR_BYTES >= 32
#define LANES 8
#include "isa_lanes.h"
#endif
#if VECTOR_BYTES >= 64
#define LANES 16
#include "isa_lanes.h"
#endif
#undef REAL
#undef INDEX
#undef FULL

#define REAL double
#define INDEX int64_t
#if VECTOR_BYTES == 64
#define FULL 8
#elif VECTOR_BYTES == 32
#define FULL 4
#else
#define FULL 2
#endif
#define LANES 1
#include "isa_lanes.h"
#define LANES 2
#include "isa_lanes.h"
#if VECTOR_BYTES >= 32
#define LANES 4
#include "isa_lanes.h"
#endif
#if VECTOR_BYTES >= 64
#define LANES 8
#include "isa_lanes.h"
#endif
#undef REAL
#undef INDEX
#undef FULL
