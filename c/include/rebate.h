/* A client of Rebate and of memcached. On the cache's host it exchanges requests through shared memory; from elsewhere,
 * or while there is no near socket, it uses TCP or a Unix socket.
 *
 *     rebate_client *cache = rebate_client_open("near:/run/rebate/near|127.0.0.1:11211", NULL);
 *     if (cache == NULL)
 *         errx(1, "%s", rebate_last_error());
 *     rebate_set(cache, "greeting", 8, "hello", 5, 0, 0);
 *     size_t length;
 *     rebate_status status;
 *     const char *value = rebate_get(cache, "greeting", 8, &length, NULL, NULL, &status);
 *     rebate_client_close(cache);
 *
 * A client belongs to one thread at a time. Keys are 1 to 250 bytes without spaces, CR, LF and NUL. An expiry of 0 is
 * none, one of up to 30 days is seconds from now, a larger one is seconds since 1970, and a negative one has passed.
 * Pointers through which results are returned may be NULL.
 */
#ifndef REBATE_H
#define REBATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rebate_client rebate_client;

typedef enum rebate_status {
    REBATE_OK = 0,
    REBATE_NOT_FOUND = 1,      /* there is no item */
    REBATE_NOT_STORED = 2,     /* the condition of an add, replace, append or prepend is not met */
    REBATE_EXISTS = 3,         /* the item has another version */
    REBATE_NOT_A_NUMBER = 4,   /* the item of an increment or decrement is no number */
    REBATE_INVALID = 5,        /* an argument is wrong */
    REBATE_UNREACHABLE = 6,    /* no address of the cache answers */
    REBATE_TIMED_OUT = 7,      /* the cache did not answer in time; a change may have been executed */
    REBATE_UNKNOWN = 8,        /* the connection was lost; whether the change was executed is unknown */
    REBATE_REFUSED = 9,        /* the cache refused the request */
    REBATE_BUG = 10            /* an error of this library */
} rebate_status;

/* Which of libmemcached's rules assigns keys to caches. */
typedef enum rebate_distribution {
    REBATE_KETAMA = 0,
    REBATE_KETAMA_WEIGHTED = 1,
    REBATE_MODULA = 2
} rebate_distribution;

/* A field of 0 has its default, which for times is 1 s. */
typedef struct rebate_options {
    uint32_t connect_timeout_ms; /* for connecting to one address */
    uint32_t timeout_ms;         /* for one call, without connecting */
    uint32_t retry_after_ms;     /* after this time a client that uses another address tries the preferred one again */
    uint32_t distribution;       /* a rebate_distribution */
} rebate_options;

/* Makes a client of one cache or of several. Commas separate caches. A cache is a list of addresses that lead to it,
 * separated by bars, the preferred one first: near:PATH, unix:PATH, or HOST:PORT, which may end in :WEIGHT. The options
 * may be NULL. It does not connect yet. Returns NULL if an argument is wrong. */
rebate_client *rebate_client_open(const char *servers, const rebate_options *options);

/* Closes the connections and frees the client. NULL is allowed. */
void rebate_client_close(rebate_client *client);

/* Returns an item's value, or NULL if there is none or the call failed, which the status says. The value is followed by
 * a NUL that does not count, and is valid until the next call with this client. */
const char *rebate_get(rebate_client *client, const char *key, size_t key_length, size_t *value_length,
                       uint32_t *flags, uint64_t *cas, rebate_status *status);

/* The same, and sets the expiry. */
const char *rebate_gat(rebate_client *client, const char *key, size_t key_length, int64_t expiry_s,
                       size_t *value_length, uint32_t *flags, uint64_t *cas, rebate_status *status);

/* Gets several keys, and calls `found` for each item with the index of its key. The value is valid during that call,
 * which must not use the client. */
typedef void rebate_found(void *context, size_t index, const char *value, size_t value_length, uint32_t flags,
                          uint64_t cas);
rebate_status rebate_mget(rebate_client *client, const char *const *keys, const size_t *key_lengths, size_t count,
                          rebate_found *found, void *context);

rebate_status rebate_set(rebate_client *client, const char *key, size_t key_length, const char *value,
                         size_t value_length, int64_t expiry_s, uint32_t flags);
rebate_status rebate_add(rebate_client *client, const char *key, size_t key_length, const char *value,
                         size_t value_length, int64_t expiry_s, uint32_t flags);
rebate_status rebate_replace(rebate_client *client, const char *key, size_t key_length, const char *value,
                             size_t value_length, int64_t expiry_s, uint32_t flags);
rebate_status rebate_append(rebate_client *client, const char *key, size_t key_length, const char *value,
                            size_t value_length);
rebate_status rebate_prepend(rebate_client *client, const char *key, size_t key_length, const char *value,
                             size_t value_length);
rebate_status rebate_cas(rebate_client *client, const char *key, size_t key_length, const char *value,
                         size_t value_length, int64_t expiry_s, uint32_t flags, uint64_t cas);

rebate_status rebate_delete(rebate_client *client, const char *key, size_t key_length);
rebate_status rebate_touch(rebate_client *client, const char *key, size_t key_length, int64_t expiry_s);
rebate_status rebate_increment(rebate_client *client, const char *key, size_t key_length, uint64_t delta,
                               uint64_t *value);
rebate_status rebate_decrement(rebate_client *client, const char *key, size_t key_length, uint64_t delta,
                               uint64_t *value);

/* Removes all items of all caches, after a delay or at once. */
rebate_status rebate_flush(rebate_client *client, uint32_t delay_s);

/* Calls `found` for each number of a page of statistics of each cache; NULL or "" is the main page. */
typedef void rebate_stat(void *context, const char *server, const char *name, const char *value);
rebate_status rebate_stats(rebate_client *client, const char *page, rebate_stat *found, void *context);

/* Returns the version of the first cache, or NULL. It is valid until the next call with this client. */
const char *rebate_version(rebate_client *client, rebate_status *status);

/* Returns the address that the cache of a key is reached by, or NULL if there is no connection. It is valid until the
 * next call with this client. */
const char *rebate_address(rebate_client *client, const char *key, size_t key_length);

/* Returns what a status means. */
const char *rebate_strerror(rebate_status status);

/* Returns the text of the last call of this thread that failed, with the address or the argument. It is valid until the
 * thread's next call that fails. */
const char *rebate_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
