/* Calls every function of rebate.h and prints what it returns. Usage: program SERVERS */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rebate.h"

#define TIMEOUT_MS 60000

static const char *name(rebate_status status)
{
    return rebate_strerror(status);
}

static void print_get(rebate_client *cache, const char *key)
{
    size_t length = 0;
    uint32_t flags = 0;
    uint64_t cas = 0;
    rebate_status status = REBATE_BUG;
    const char *value = rebate_get(cache, key, strlen(key), &length, &flags, &cas, &status);
    if (value == NULL)
        printf("get %s: %s\n", key, name(status));
    else
        printf("get %s: %s %zu flags %" PRIu32 " %d\n", key, value, length, flags, cas != 0);
}

static void print_found(void *context, size_t index, const char *value, size_t length, uint32_t flags, uint64_t cas)
{
    printf("%s %zu: %s %zu %" PRIu32 " %d\n", (const char *)context, index, value, length, flags, cas != 0);
}

static void count_stat(void *context, const char *server, const char *stat, const char *value)
{
    if (strlen(server) > 0 && strcmp(stat, "pid") == 0 && atoi(value) > 0)
        *(int *)context = 1;
}

static void print_edits(rebate_client *cache)
{
    printf("add: %s\n", name(rebate_add(cache, "greeting", 8, "no", 2, 0, 0)));
    printf("add: %s\n", name(rebate_add(cache, "b", 1, "", 0, 100, 1)));
    printf("replace: %s\n", name(rebate_replace(cache, "b", 1, "mid", 3, 0, 2)));
    printf("replace: %s\n", name(rebate_replace(cache, "none", 4, "x", 1, 0, 0)));
    printf("append: %s\n", name(rebate_append(cache, "b", 1, ">", 1)));
    printf("prepend: %s\n", name(rebate_prepend(cache, "b", 1, "<", 1)));
    printf("append: %s\n", name(rebate_append(cache, "none", 4, ">", 1)));
    print_get(cache, "b");
    uint64_t cas = 0;
    rebate_get(cache, "b", 1, NULL, NULL, &cas, NULL);
    printf("cas: %s\n", name(rebate_cas(cache, "b", 1, "late", 4, 0, 0, cas + 1)));
    printf("cas: %s\n", name(rebate_cas(cache, "b", 1, "new", 3, 0, 0, cas)));
    printf("cas: %s\n", name(rebate_cas(cache, "none", 4, "new", 3, 0, 0, cas)));
    uint64_t number = 0;
    rebate_set(cache, "n", 1, "10", 2, 0, 0);
    printf("increment: %s", name(rebate_increment(cache, "n", 1, 5, &number)));
    printf(" %" PRIu64 "\n", number);
    printf("decrement: %s", name(rebate_decrement(cache, "n", 1, 20, &number)));
    printf(" %" PRIu64 "\n", number);
    printf("increment: %s\n", name(rebate_increment(cache, "none", 4, 1, &number)));
    printf("increment: %s\n", name(rebate_increment(cache, "b", 1, 1, NULL)));
    printf("touch: %s\n", name(rebate_touch(cache, "b", 1, 100)));
    printf("touch: %s\n", name(rebate_touch(cache, "none", 4, 100)));
    printf("gat: %s\n", rebate_gat(cache, "b", 1, 100, NULL, NULL, NULL, NULL));
    printf("past: %s\n", name(rebate_set(cache, "past", 4, "x", 1, -1, 0)));
    print_get(cache, "past");
    printf("delete: %s\n", name(rebate_delete(cache, "b", 1)));
    printf("delete: %s\n", name(rebate_delete(cache, "b", 1)));
}

/* What a caller may do wrong. */
static void print_mistakes(rebate_client *cache)
{
    printf("%d", rebate_client_open(NULL, NULL) == NULL);
    printf(" %s\n", rebate_last_error());
    printf("%d", rebate_client_open("near:/n|no port", NULL) == NULL);
    printf(" %s\n", rebate_last_error());
    const rebate_options wrong = {0, 0, 0, 9};
    printf("%d", rebate_client_open("a:1", &wrong) == NULL);
    printf(" %s\n", rebate_last_error());
    rebate_client_close(NULL);
    rebate_status status = REBATE_OK;
    printf("%d", rebate_get(cache, "two words", 9, NULL, NULL, NULL, &status) == NULL);
    printf(" %s: %s\n", name(status), rebate_last_error());
    printf("%s\n", name(rebate_set(cache, NULL, 5, "x", 1, 0, 0)));
    printf("%s\n", name(rebate_set(cache, "k", 1, NULL, 5, 0, 0)));
    printf("%s\n", name(rebate_delete(NULL, "k", 1)));
    printf("%s\n", name(rebate_mget(cache, NULL, NULL, 3, print_found, NULL)));
    printf("%s\n", name(rebate_set(cache, "k", 1, "x", 1, INT64_MAX, 0)));
    printf("%s\n", rebate_strerror((rebate_status)99));
    rebate_client *nobody = rebate_client_open("127.0.0.1:1", NULL);
    printf("%s\n", name(rebate_flush(nobody, 0)));
    rebate_client_close(nobody);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    rebate_options options = {TIMEOUT_MS, TIMEOUT_MS, 0, REBATE_KETAMA};
    rebate_client *cache = rebate_client_open(argv[1], &options);
    if (cache == NULL) {
        fprintf(stderr, "%s\n", rebate_last_error());
        return 1;
    }
    printf("set: %s\n", name(rebate_set(cache, "greeting", 8, "hello", 5, 0, 7)));
    print_get(cache, "greeting");
    print_get(cache, "none");
    printf("%d\n", rebate_address(cache, "greeting", 8) != NULL);
    print_edits(cache);
    const char *keys[] = {"greeting", "none", "n"};
    const size_t lengths[] = {8, 4, 1};
    char context[] = "found";
    printf("mget: %s\n", name(rebate_mget(cache, keys, lengths, 3, print_found, context)));
    int has_pid = 0;
    printf("stats: %s", name(rebate_stats(cache, NULL, count_stat, &has_pid)));
    printf(" %d\n", has_pid);
    rebate_status status = REBATE_BUG;
    const char *version = rebate_version(cache, &status);
    printf("version: %s %d\n", name(status), version != NULL && strlen(version) > 0);
    print_mistakes(cache);
    printf("flush: %s\n", name(rebate_flush(cache, 0)));
    print_get(cache, "greeting");
    printf("set: %s\n", name(rebate_set(cache, "greeting", 8, "hello", 5, 0, 7)));
    rebate_client_close(cache);
    return 0;
}
