/* Four facts of each gradient from one reading of memory, and how far fixed elements of each weight
 * have moved; one_pass.py says how it is called.
 *
 * Compiled when the package is installed, if a C compiler is there, and never later; without it
 * gradient_sums.py and host_samples.py find the same with numpy. Writes nothing but its results, which
 * are the same to the bit however many threads share the work.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A stale build in a working copy is told by its number. */
#define VERSION 3

/* Elements summed in float before they are added up in double: 128 additions a lane, at most. */
#define BLOCK 512

/* Elements that a thread takes at a time: a quarter of a MiB. */
#define SEGMENT 65536

/* From one element of a sample to the next where a look at some of them will do. */
#define LOOK 64

/* OpenMP's, as a compiler calls it: runs a function once in each of some threads, this one among
 * them. The one that torch itself uses is handed in, with the threads that it has already. */
typedef void parallel(void (*)(void *), void *, unsigned num_threads, unsigned flags);

struct labour {
    void (*do_item)(void *work, int64_t item);
    void *work;
    int64_t num_items;
    int64_t next;
};

static void join_in(void *data)
{
    struct labour *labour = data;
    int64_t item;
    while ((item = __atomic_fetch_add(&labour->next, 1, __ATOMIC_RELAXED)) < labour->num_items)
        labour->do_item(labour->work, item);
}

/* Each item once. No item may depend on another. */
static void share_out(struct labour labour, parallel *in_threads, unsigned num_threads)
{
    if (in_threads != 0 && num_threads > 1)
        in_threads(join_in, &labour, num_threads, 0);
    else
        join_in(&labour);
}

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

struct segment {
    const float *x;
    int64_t size;
    double squares;
    int64_t zeros;
    int32_t greatest;
};

/* Straight through, as processors expect it: to ask for memory ahead and to read several places by
 * turns were tried, and took a tenth to a quarter longer after real backward passes. */
static void read_segment(void *work, int64_t item)
{
    struct segment *segment = (struct segment *)work + item;
    segment->squares = 0.0;
    segment->zeros = 0;
    segment->greatest = 0;
    for (int64_t at = 0; at < segment->size; at += BLOCK) {
        const int64_t left = segment->size - at;
        float squares;
        int32_t zeros;
        read_block(segment->x + at, left < BLOCK ? (int32_t)left : BLOCK, &squares,
                   &segment->greatest, &zeros);
        segment->squares += squares;
        segment->zeros += zeros;
    }
}

/* Of num_tensors float32 arrays: out holds all sums of squares, then all greatest magnitudes,
 * then all counts of zeros. An array at address 0 has none of anything: FSDP frees the memory of
 * parameters and lets them keep their sizes. 0 where there is no memory to work in. */
int32_t runwatch_read(const uint64_t *addresses, const int64_t *sizes, int64_t num_tensors, double *out,
                      parallel *in_threads, unsigned num_threads)
{
    int64_t num_segments = 0, s = 0;
    for (int64_t t = 0; t < num_tensors; t++)
        num_segments += addresses[t] == 0 ? 0 : (sizes[t] + SEGMENT - 1) / SEGMENT;
    struct segment *segments = malloc((size_t)(num_segments + 1) * sizeof *segments);
    if (segments == 0)
        return 0;
    for (int64_t t = 0; t < num_tensors; t++) {
        const float *x = (const float *)(uintptr_t)addresses[t];
        for (int64_t at = 0; x != 0 && at < sizes[t]; at += SEGMENT, s++) {
            const int64_t left = sizes[t] - at;
            segments[s].x = x + at;
            segments[s].size = left < SEGMENT ? left : SEGMENT;
        }
    }
    share_out((struct labour){read_segment, segments, num_segments, 0}, in_threads, num_threads);
    s = 0;
    for (int64_t t = 0; t < num_tensors; t++) {
        double squares = 0.0;
        int64_t zeros = 0;
        int32_t greatest = 0;
        for (int64_t at = 0; addresses[t] != 0 && at < sizes[t]; at += SEGMENT, s++) {
            squares += segments[s].squares;
            zeros += segments[s].zeros;
            greatest = segments[s].greatest > greatest ? segments[s].greatest : greatest;
        }
        float magnitude;
        memcpy(&magnitude, &greatest, sizeof magnitude);
        out[t] = squares;
        out[num_tensors + t] = magnitude;
        out[2 * num_tensors + t] = (double)zeros;
    }
    free(segments);
    return 1;
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

struct samples {
    const uint64_t *addresses;
    const int64_t *strides, *counts, *begins;
    float *remembered;
    double *squares;
};

static void follow_sample(void *work, int64_t t)
{
    const struct samples *of = work;
    const float *x = (const float *)(uintptr_t)of->addresses[t];
    float *remembered = of->remembered + of->begins[t];
    of->squares[t] = of->strides[t] == 1
                         ? follow_all(x, of->counts[t], remembered)
                         : follow_some(x, of->strides[t], of->counts[t], remembered);
}

/* Of every strides[t]-th element of each array, counts[t] of them: how far they have moved from what
 * is remembered of all, each array's from begins[t] on, as sums of squares; those of now are
 * remembered instead. */
void runwatch_follow(const uint64_t *addresses, const int64_t *strides, const int64_t *counts,
                     const int64_t *begins, int64_t num_arrays, float *remembered, double *squares,
                     parallel *in_threads, unsigned num_threads)
{
    struct samples samples = {addresses, strides, counts, begins, remembered, squares};
    share_out((struct labour){follow_sample, &samples, num_arrays, 0}, in_threads, num_threads);
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
