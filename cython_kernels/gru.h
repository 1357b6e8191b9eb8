/* A gated recurrent unit, a chunk of rows at a time: products of its weights, gates and states, and all gradients. */
#include <stdint.h>

struct gru {
    int64_t rows, width, chunks;
    const void *state;    /* [rows, width] */
    const void *grad_out; /* [rows, width], or NULL for the unit itself */
    void *kept;           /* [rows, 4 * width], or NULL: both gates, the news, and what these have of the state */
    void *out;            /* [rows, width]: the next state, or the gradient of this one */
    void *room;           /* for a chunk's products, or the gradients of these, and a share in that of the state */
};

#define TEMPLATE "gru.inc"
#include "linear.h"
static kernel_table gru_kernels = KERNELS(gru), gru_backward_kernels = KERNELS(gru_backward),
                    gru_end_kernels = KERNELS(gru_end);
