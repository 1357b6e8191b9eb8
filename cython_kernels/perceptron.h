/* A hidden layer of few inputs, with a ReLU, and its one output: nothing of the hidden layer is kept. */
#include <stdint.h>

struct perceptron {
    int64_t rows, ins, width, chunks;
    const void *x;        /* [rows, ins] */
    const void *weights;  /* [ins + 2, width]: of the hidden layer, its bias, and of the output */
    void *out;            /* [rows], or NULL in backward */
    const void *grad_out; /* [rows], or NULL */
    void *grad_x;         /* [rows, ins], or NULL */
    void *partial;        /* [chunks, ins + 2, width], or NULL: of a chunk of rows, the gradient of weights */
};

#define TEMPLATE "perceptron.inc"
#include "isa.inc"
static longest_table perceptron_kernels = LONGEST(perceptron),
                     perceptron_backward_kernels = LONGEST(perceptron_backward);
