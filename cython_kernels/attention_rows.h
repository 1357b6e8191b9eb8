/* Fused attention over rows of edges, a chunk at a time: scores, softmax, weighted sums. */
#include "attention_chunk.h"
#include "attention_softmax.h"

INLINE void KERNEL(take)(struct chunk *edges, const struct attention *s, int64_t begin, int64_t end) {
    edges->count = end - begin < s->chunk ? end - begin : s->chunk;
    memcpy(edges->col, s->col + begin, edges->count * sizeof(int32_t));
    for (int64_t e = edges->count; e % LANES; e++) edges->col[e] = edges->col[e - 1];
    if (!s->drops) return;
    for (int64_t e = 0; e < FILLED(edges->count); e++) edges->hash[e] = (uint32_t)(begin + e);
    if (s->perm) memcpy(edges->hash, s->perm + begin, edges->count * sizeof(int32_t));
    WIDEST(number)(edges->hash, FILLED(edges->count), s->low);
}

/* Scores of `head` between the row's own part, `mine`, and `theirs`, at the other ends of the edges. */
INLINE void KERNEL(scores)(const struct attention *s, const struct chunk *edges, const REAL *mine,
                           const REAL *theirs, int64_t head, REAL *score, const int family) {
    const int64_t width = s->width, stride = s->heads * width;
    mine += head * width;
    theirs += head * width;
    if (family == GAT)
        for (int64_t e = 0; e < edges->count; e++) score[e] = *mine + theirs[edges->col[e] * stride];
    else if (family == GATV2)
        KERNEL(leaky_dots)(edges, mine, theirs, stride, (const REAL *)s->att + head * width, s->slope, width, score);
    else KERNEL(dots)(edges, mine, theirs, stride, width, score);
}

INLINE void KERNEL(scale)(REAL *row, int64_t width, REAL by) {
    for (int64_t c = 0; c < width; c++) row[c] *= by;
}

INLINE void KERNEL(forward)(const void *task, int64_t begin, int64_t end, const int family) {
    const struct attention *s = (const struct attention *)task;
    const int64_t heads = s->heads, width = s->width, channels = s->channels, stride = heads * channels;
    const REAL slope = family == GAT ? (REAL)s->slope : 1;
    const int keep = family == GAT && s->out_positive;
    REAL score[CHUNK], kept[CHUNK], positive[CHUNK], top[GROUP], sum[GROUP], positive_sum[GROUP];
    struct chunk edges;
    for (int64_t row = begin; row < end; row++)
        for (int64_t first = 0; first < heads; first += GROUP) {
            const int64_t group = heads - first < GROUP ? heads - first : GROUP;
            const REAL *query = (const REAL *)s->query + row * heads * width;
            REAL *out = (REAL *)s->out + row * stride + first * channels;
            REAL *out_positive = keep ? (REAL *)s->out_positive + row * stride + first * channels : NULL;
            memset(out, 0, group * channels * sizeof(REAL));
            if (keep) memset(out_positive, 0, group * channels * sizeof(REAL));
            for (int64_t h = 0; h < group; h++) top[h] = -(REAL)INFINITY, sum[h] = positive_sum[h] = 0;
            for (int64_t edge = s->rowptr[row]; edge < s->rowptr[row + 1]; edge += s->chunk) {
                KERNEL(take)(&edges, s, edge, s->rowptr[row + 1]);
                for (int64_t h = 0; h < group; h++) {
                    const REAL *value = (const REAL *)s->value + (first + h) * channels;
                    KERNEL(scores)(s, &edges, query, (const REAL *)s->key, first + h, score, family);
                    const REAL factor = WIDEST(soften)(score, keep ? positive : NULL, edges.count, slope, top + h,
                                                        sum + h, positive_sum + h);
                    if (factor != 1) {
                        KERNEL(scale)(out + h * channels, channels, factor);
                        if (keep) KERNEL(scale)(out_positive + h * channels, channels, factor);
                    }
                    if (s->drops) {
                        WIDEST(draw)(s, &edges, first + h, kept);
                        for (int64_t e = 0; e < edges.count; e++) score[e] *= kept[e];
                        if (keep)
                            for (int64_t e = 0; e < edges.count; e++) positive[e] *= kept[e];
                    }
                    KERNEL(add)(&edges, score, value, stride, channels, out + h * channels);
                    if (keep) KERNEL(add)(&edges, positive, value, stride, channels, out_positive + h * channels);
                }
            }
            for (int64_t h = 0; h < group; h++) {
                const int any = s->rowptr[row + 1] > s->rowptr[row];
                const REAL inverse = any ? 1 / sum[h] : 0;
                KERNEL(scale)(out + h * channels, channels, inverse);
                REAL *stats = (REAL *)s->stats + (row * heads + first + h) * 2;
                stats[0] = top[h];
                stats[1] = sum[h];
                if (keep) {
                    KERNEL(scale)(out_positive + h * channels, channels, inverse);
                    ((REAL *)s->alpha_positive)[row * heads + first + h] = positive_sum[h] * inverse;
                }
            }
        }
}

/* What the passes below read of destinations, and the gradient of GAT's query: leaky_relu' is slope, and 1 - slope more
 * on positive scores; a row's gradients of scores add up to 0. */
static void KERNEL(terms)(const void *task, int64_t begin, int64_t end) {
    const struct attention *s = (const struct attention *)task;
    const int64_t channels = s->channels;
    for (int64_t pair = begin * s->heads; pair < end * s->heads; pair++) {
        const REAL *grad_out = (const REAL *)s->grad_out + pair * channels, *stats = (const REAL *)s->stats + pair * 2;
        REAL *grad = (REAL *)s->grad + pair * channels, *node = (REAL *)s->node + pair * 2;
        const REAL inverse = 1 / stats[1], delta = KERNEL(dot)(grad_out, (const REAL *)s->out + pair * channels, channels);
        for (int64_t c = 0; c < channels; c++) grad[c] = grad_out[c] * inverse;
        node[0] = stats[0];
        node[1] = delta * inverse;
        if (!s->out_positive) continue;
        const REAL positive = KERNEL(dot)(grad_out, (const REAL *)s->out_positive + pair * channels, channels);
        const REAL less = delta * ((const REAL *)s->alpha_positive)[pair];
        ((REAL *)s->grad_query)[pair] = (positive - less) * (1 - (REAL)s->slope);
    }
}

/* Gradients of the rows' own tensors: of query where rows are destinations, of key and value over the transpose. */
INLINE void KERNEL(backward)(const void *task, int64_t begin, int64_t end, const int family, const int transposed) {
    const struct attention *s = (const struct attention *)task;
    const int64_t heads = s->heads, width = s->width, channels = s->channels;
    const REAL slope = family == GAT ? (REAL)s->slope : 1;
    const REAL *query = (const REAL *)s->query, *key = (const REAL *)s->key, *node = (const REAL *)s->node;
    const REAL *value = (const REAL *)s->value, *grad_out = (const REAL *)s->grad;
    const REAL *mine = transposed ? key : query, *theirs = transposed ? query : key;
    const REAL *my_side = transposed ? value : grad_out, *their_side = transposed ? grad_out : value;
    REAL *grad_mine = transposed ? (REAL *)s->grad_key : (REAL *)s->grad_query;
    REAL score[CHUNK], grad[CHUNK], top[CHUNK], delta[CHUNK], kept[CHUNK];
    struct chunk edges;
    for (int64_t row = begin; row < end; row++) {
        const REAL *my_node = node + row * heads * 2;
        memset(grad_mine + row * heads * width, 0, heads * width * sizeof(REAL));
        if (transposed) memset((REAL *)s->grad_value + row * heads * channels, 0, heads * channels * sizeof(REAL));
        for (int64_t edge = s->rowptr[row]; edge < s->rowptr[row + 1]; edge += s->chunk) {
            KERNEL(take)(&edges, s, edge, s->rowptr[row + 1]);
            for (int64_t h = 0; h < heads; h++) {
                const int64_t at = h * width, side = h * channels;
                REAL *out = grad_mine + row * heads * width + at;
                for (int64_t e = 0; e < edges.count; e++) {
                    const REAL *numbers = transposed ? node + (edges.col[e] * heads + h) * 2 : my_node + h * 2;
                    top[e] = numbers[0];
                    delta[e] = numbers[1];
                }
                KERNEL(scores)(s, &edges, mine + row * heads * width, theirs, h, score, family);
                KERNEL(dots)(&edges, my_side + row * heads * channels + side, their_side + side, heads * channels,
                             channels, grad);
                if (s->drops) WIDEST(draw)(s, &edges, h, kept);
                const REAL total = WIDEST(weigh)(score, grad, top, delta, s->drops ? kept : NULL, edges.count, slope);
                if (family == GAT) *out += total;
                if (family == GATV2) { /* leaky_relu' is slope, and 1 - slope more where its argument is positive */
                    for (int64_t c = 0; c < width; c++) out[c] += (REAL)s->slope * total;
                    for (int64_t e = 0; e < edges.count; e++) grad[e] *= 1 - (REAL)s->slope;
                    KERNEL(add_gated)(&edges, grad, theirs + at, heads * width, mine + row * heads * width + at,
                                      width, out);
                }
                if (family == DOT) KERNEL(add)(&edges, grad, theirs + at, heads * width, width, out);
                if (transposed)
                    KERNEL(add)(&edges, score, grad_out + side, heads * channels, channels,
                                (REAL *)s->grad_value + row * heads * channels + side);
            }
        }
    }
}

#define FORWARD(name, family)                                                                                     \
    static void KERNEL(name)(const void *task, int64_t begin, int64_t end) {                                      \
        KERNEL(forward)(task, begin, end, family);                                                                \
    }
#define BACKWARD(name, family, transposed)                                                                        \
    static void KERNEL(name)(const void *task, int64_t begin, int64_t end) {                                      \
        KERNEL(backward)(task, begin, end, family, transposed);                                                   \
    }
FORWARD(gat_forward, GAT)
FORWARD(gatv2_forward, GATV2)
FORWARD(dot_forward, DOT)
BACKWARD(gatv2_grad_query, GATV2, 0)
BACKWARD(dot_grad_query, DOT, 0)
BACKWARD(gat_grad_key, GAT, 1)
BACKWARD(gatv2_grad_key, GATV2, 1)
BACKWARD(dot_grad_key, DOT, 1)
#undef FORWARD
#undef BACKWARD
