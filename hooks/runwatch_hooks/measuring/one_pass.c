/* Four facts of each gradient from one reading of memory, and how far fixed elements of each weight
 * have moved; one_pass.py says how it is called.
 *
 * Compiled when the package is installed, if a C compiler is there, and never later; without it
 * gradient_sums.py and host_samples.py find the same with numpy. Writes nothing but its results.
 */
#include <stdint.h>
#include <string.h>

/* A stale build in a working copy is told by its number. */
#define VERSION 2

/* Elements summed in float before they are added up in double: 128 additions a lane, at most. */
#define BLOCK 512

/* From one element of a sample to the next where a look at some of them will do. */
#define LOOK 64

/* The processor's widest registers, chosen as the library is loaded. */
#ifdef CLONES
__attribute__((target_clones("default", "avx2", "avx512f")))
#endif
static void read_block(const float *x, int32_t n, float *squares, int32_t *greatest, int32_t *zeros)
{
    float sum = 0.0f;
    int32_t most = *greatest, count = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff; /* magnitudes are ordered as their bits are, and NaN comes last */
        sum += x[i] * x[i];
        most = bits > most ? bits : most;
        count += bits == 0;
    }
    *squares = sum;
    *greatest = most;
    *zeros = count;
}

int32_t runwatch_version(void)
{
    return VERSION;
}

/* Of num_tensors float32 arrays: out holds all sums of squares, then all greatest magnitudes,
 * then all counts of zeros. An array at address 0 has none of anything: FSDP frees the memory of
 * parameters and lets them keep their sizes.
 *
 * Straight through each array, as processors expect it: to ask for memory ahead and to read several
 * places by turns were tried, and took a tenth to a quarter longer after real backward passes. */
void runwatch_read(const uint64_t *addresses, const int64_t *sizes, int64_t num_tensors, double *out)
{
    for (int64_t t = 0; t < num_tensors; t++) {
        const float *x = (const float *)(uintptr_t)addresses[t];
        const int64_t size = x == 0 ? 0 : sizes[t];
        double squares = 0.0;
        int64_t zeros = 0;
        int32_t greatest = 0;
        for (int64_t at = 0; at < size; at += BLOCK) {
            const int64_t left = size - at;
            float block_squares;
            int32_t block_zeros;
            read_block(x + at, left < BLOCK ? (int32_t)left : BLOCK, &block_squares, &greatest,
                       &block_zeros);
            squares += block_squares;
            zeros += block_zeros;
        }
        float magnitude;
        memcpy(&magnitude, &greatest, sizeof magnitude);
        out[t] = squares;
        out[num_tensors + t] = magnitude;
        out[2 * num_tensors + t] = (double)zeros;
    }
}

/* The sum of squares of how far count elements lie from those remembered, which they replace. */
#ifdef CLONES
__attribute__((target_clones("default", "avx2", "avx512f")))
#endif
static double follow_all(const float *x, int64_t count, float *remembered)
{
    double squares = 0.0;
    for (int64_t i = 0; i < count; i++) {
        double moved = (double)x[i] - remembered[i];
        squares += moved * moved;
        remembered[i] = x[i];
    }
    return squares;
}

static double follow_some(const float *x, int64_t stride, int64_t count, float *remembered)
{
    double squares = 0.0;
    for (int64_t i = 0; i < count; i++) {
        double moved = (double)x[i * stride] - remembered[i];
        squares += moved * moved;
        remembered[i] = x[i * stride];
    }
    return squares;
}

/* Of every strides[t]-th element of each array, counts[t] of them: how far they have moved from what
 * is remembered of all, end to end, as sums of squares; those of now are remembered instead. */
void runwatch_follow(const uint64_t *addresses, const int64_t *strides, const int64_t *counts,
                     int64_t num_arrays, float *remembered, double *squares)
{
    for (int64_t t = 0; t < num_arrays; remembered += counts[t], t++) {
        const float *x = (const float *)(uintptr_t)addresses[t];
        squares[t] = strides[t] == 1 ? follow_all(x, counts[t], remembered)
                                     : follow_some(x, strides[t], counts[t], remembered);
    }
}

/* Whether each array's elements are those that are remembered, as follow has them: its first one, and
 * every LOOK-th after it. While those of one array are compared, the next one's are asked for. */
int32_t runwatch_stand(const uint64_t *addresses, const int64_t *strides, const int64_t *counts,
                       int64_t num_arrays, const float *remembered)
{
    int64_t begun = 0;
    int32_t differing = 0;
    for (int64_t t = 0; t < num_arrays; begun += counts[t], t++) {
        const float *x = (const float *)(uintptr_t)addresses[t];
        for (int64_t i = 0; t + 1 < num_arrays && i < counts[t + 1]; i += LOOK)
            __builtin_prefetch((const float *)(uintptr_t)addresses[t + 1] + i * strides[t + 1]);
        for (int64_t i = 0; i < counts[t]; i += LOOK)
            differing |= memcmp(x + i * strides[t], remembered + begun + i, sizeof *x) != 0;
    }
    return !differing;
}
