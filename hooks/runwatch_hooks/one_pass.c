/* Four facts of each gradient from one reading of memory; one_pass.py says how it is called.
 *
 * Compiled when the package is installed, if a C compiler is there, and never later; without it
 * gradient_sums.py finds the same with numpy. Writes nothing but its results.
 */
#include <stdint.h>
#include <string.h>

/* A stale build in a working copy is told by its number. */
#define VERSION 1

/* How far ahead of the reading memory is asked for, in bytes, and the lines it comes in. What a
 * backward pass leaves is seldom in the caches, and processors by themselves stop at a page's end. */
#define AHEAD 2048
#define LINE 64

/* Elements summed in float before they are added up in double: 128 additions a lane, at most. */
#define BLOCK 512

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
 * parameters and lets them keep their sizes. */
void runwatch_read(const uint64_t *addresses, const int64_t *sizes, int64_t num_tensors, double *out)
{
    for (int64_t t = 0; t < num_tensors; t++) {
        const float *x = (const float *)(uintptr_t)addresses[t];
        double squares = 0.0;
        int64_t zeros = 0;
        int32_t greatest = 0;
        for (int64_t at = 0; x != 0 && at < sizes[t]; at += BLOCK) {
            int64_t left = sizes[t] - at;
            for (int32_t byte = 0; byte < BLOCK * (int32_t)sizeof *x; byte += LINE)
                __builtin_prefetch((const char *)(x + at) + AHEAD + byte);
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
