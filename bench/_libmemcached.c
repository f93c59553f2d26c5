/* A closed loop on memcached through libmemcached, for near.py: the next call when the last one has returned. It prints
 * one line of JSON, as the example `closed_loop` of the crate rebate-client does.
 *
 * _libmemcached (HOST PORT | PATH 0) get|many KEYS VALUE_BYTES SECONDS
 */
#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_s(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int ascending(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void fail(const char *what) {
    fprintf(stderr, "_libmemcached: %s\n", what);
    exit(1);
}

static size_t get_many(memcached_st *cache, const char *const *keys, const size_t *lengths, size_t count,
                       size_t bytes) {
    memcached_return_t status;
    memcached_result_st result, *next;
    size_t right = 0;
    if (memcached_failed(memcached_mget(cache, keys, lengths, count)))
        fail("a request of many keys failed");
    memcached_result_create(cache, &result);
    while ((next = memcached_fetch_result(cache, &result, &status)) != NULL)
        right += memcached_result_length(next) == bytes;
    memcached_result_free(&result);
    return right;
}

int main(int words, char **word) {
    if (words != 7)
        fail("it needs (HOST PORT | PATH 0) get|many KEYS VALUE_BYTES SECONDS");
    int port = atoi(word[2]);
    int is_many = strcmp(word[3], "many") == 0;
    size_t count = strtoul(word[4], NULL, 10), bytes = strtoul(word[5], NULL, 10);
    double seconds = atof(word[6]);
    memcached_st *cache = memcached_create(NULL);
    memcached_behavior_set(cache, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
    memcached_return_t added = port ? memcached_server_add(cache, word[1], (in_port_t)port)
                                    : memcached_server_add_unix_socket(cache, word[1]);
    if (count == 0 || memcached_failed(added))
        fail("no server, or no keys");
    char **keys = calloc(count, sizeof *keys), *value = malloc(bytes + 1);
    size_t *lengths = calloc(count, sizeof *lengths);
    for (size_t at = 0; at < bytes; at++)
        value[at] = (char)(at * 131 + (at >> 3));
    for (size_t at = 0; at < count; at++) {
        keys[at] = malloc(32);
        lengths[at] = (size_t)snprintf(keys[at], 32, "key:%06zu", at);
        if (memcached_failed(memcached_set(cache, keys[at], lengths[at], value, bytes, 0, 0)))
            fail("a value was not stored");
    }
    size_t calls = 0, room = 1 << 22;
    double *latency_s = malloc(room * sizeof *latency_s);
    double begun_s = now_s(CLOCK_MONOTONIC), cpu_s = now_s(CLOCK_PROCESS_CPUTIME_ID), since_s = begun_s;
    while (since_s < begun_s + seconds && calls < room) {
        if (is_many) {
            if (get_many(cache, (const char *const *)keys, lengths, count, bytes) != count)
                fail("a wrong answer to many keys");
        } else {
            size_t at = calls % count, found;
            uint32_t flags;
            memcached_return_t status;
            char *got = memcached_get(cache, keys[at], lengths[at], &found, &flags, &status);
            if (got == NULL || found != bytes || memcmp(got, value, bytes) != 0)
                fail("a wrong answer");
            free(got);
        }
        double end_s = now_s(CLOCK_MONOTONIC);
        latency_s[calls++] = end_s - since_s;
        since_s = end_s;
    }
    cpu_s = now_s(CLOCK_PROCESS_CPUTIME_ID) - cpu_s;
    qsort(latency_s, calls, sizeof *latency_s, ascending);
    printf("{\"calls\": %zu, \"all_calls\": %zu, \"calls_per_s\": %.0f, ", calls, calls + count,
           (double)calls / (since_s - begun_s));
    printf("\"p10_ns\": %.0f, \"p50_ns\": %.0f, \"p99_ns\": %.0f, ", latency_s[(calls - 1) / 10] * 1e9,
           latency_s[(calls - 1) / 2] * 1e9, latency_s[(calls - 1) * 99 / 100] * 1e9);
    printf("\"client_cpu_ns\": %.0f}\n", cpu_s * 1e9 / (double)calls);
    return 0;
}
