/* Common parts of the C programs of the benchmarks. Times are in nanoseconds. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SECOND 1000000000LL

static inline void die(const char *what)
{
    perror(what);
    exit(1);
}

static inline int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static inline int ascending(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;

    return (one > other) - (one < other);
}

/* Returns a quantile of times, in microseconds. */
static inline double quantile(const int64_t *sorted, long count, double q)
{
    long rank = q * count;

    return count ? sorted[rank < count ? rank : count - 1] / 1e3 : 0;
}
