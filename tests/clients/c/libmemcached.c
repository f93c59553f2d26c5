/* Performs the operations of the client matrix with libmemcached.
 *
 * Usage: libmemcached CLIENT PROTOCOL SECURITY CA OPERATIONS HOST:PORT...
 * tests/clients/README.md describes the arguments, the operations and the lines that are printed.
 */

#define _GNU_SOURCE
#include <inttypes.h>
#include <libmemcached/memcached.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGUMENTS_MAX 1024
/* A server that is well may be silent for seconds where the host takes its core away. */
#define LIMIT_MS 60000

/* An argument: the text of the line, and its bytes if it is hex. */
struct argument {
    const char *text;
    char *bytes;
    size_t length;
};

static int digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static void decode(struct argument *argument)
{
    argument->length = strlen(argument->text) / 2;
    argument->bytes = malloc(argument->length + 1);
    for (size_t at = 0; at < argument->length; at++)
        argument->bytes[at] = (char)(digit(argument->text[2 * at]) << 4 | digit(argument->text[2 * at + 1]));
    argument->bytes[argument->length] = 0;
}

static void print_hex(const char *bytes, size_t length)
{
    for (size_t at = 0; at < length; at++) {
        putchar("0123456789abcdef"[(unsigned char)bytes[at] >> 4]);
        putchar("0123456789abcdef"[bytes[at] & 15]);
    }
}

static void print_error(memcached_st *client, memcached_return_t code)
{
    printf("error %s", memcached_strerror(client, code));
}

/* Prints the result of an operation that has no value. */
static void print_done(memcached_st *client, memcached_return_t code)
{
    if (memcached_success(code))
        printf("yes");
    else if (code == MEMCACHED_NOTSTORED || code == MEMCACHED_DATA_EXISTS || code == MEMCACHED_NOTFOUND)
        printf("no");
    else
        print_error(client, code);
}

static void print_number(memcached_st *client, memcached_return_t code, uint64_t number)
{
    if (memcached_success(code))
        printf("number %" PRIu64, number);
    else if (code == MEMCACHED_NOTFOUND)
        printf("miss");
    else
        print_error(client, code);
}

static void get(memcached_st *client, const struct argument *key)
{
    memcached_return_t code;
    size_t length;
    uint32_t flags;
    char *value = memcached_get(client, key->bytes, key->length, &length, &flags, &code);
    if (memcached_success(code)) {
        printf("value ");
        print_hex(value, length);
    } else if (code == MEMCACHED_NOTFOUND) {
        printf("miss");
    } else {
        print_error(client, code);
    }
    free(value);
}

/* Prints what a get of these keys finds, in the order of the keys. */
static void get_all(memcached_st *client, const struct argument *keys, size_t count)
{
    const char *names[ARGUMENTS_MAX];
    size_t lengths[ARGUMENTS_MAX];
    memcached_result_st *found[ARGUMENTS_MAX] = {0};
    for (size_t at = 0; at < count; at++) {
        names[at] = keys[at].bytes;
        lengths[at] = keys[at].length;
    }
    memcached_return_t code = memcached_mget(client, names, lengths, count);
    if (!memcached_success(code)) {
        print_error(client, code);
        return;
    }
    memcached_result_st *result;
    while ((result = memcached_fetch_result(client, NULL, &code)) != NULL) {
        for (size_t at = 0; at < count; at++) {
            if (lengths[at] == memcached_result_key_length(result)
                && memcmp(names[at], memcached_result_key_value(result), lengths[at]) == 0) {
                memcached_result_free(found[at]);
                found[at] = result;
                break;
            }
        }
    }
    printf("values");
    for (size_t at = 0; at < count; at++) {
        if (found[at] == NULL)
            continue;
        putchar(' ');
        print_hex(names[at], lengths[at]);
        putchar('=');
        print_hex(memcached_result_value(found[at]), memcached_result_length(found[at]));
        memcached_result_free(found[at]);
    }
}

static memcached_return_t set(memcached_st *client, const struct argument *key, const char *value, size_t length)
{
    return memcached_set(client, key->bytes, key->length, value, length, 0, 0);
}

static void compare_and_swap(memcached_st *client, const struct argument *given)
{
    memcached_return_t code;
    const char *keys[] = {given[0].bytes};
    code = memcached_mget(client, keys, &given[0].length, 1);
    memcached_result_st *found = memcached_fetch_result(client, NULL, &code);
    if (found == NULL) {
        printf("miss");
        return;
    }
    uint64_t token = memcached_result_cas(found);
    memcached_result_free(found);
    /* The answer's end has to be read as well. */
    while ((found = memcached_fetch_result(client, NULL, &code)) != NULL)
        memcached_result_free(found);
    if (strcmp(given[2].text, "set") == 0)
        set(client, &given[0], "other", 5);
    else if (strcmp(given[2].text, "delete") == 0)
        memcached_delete(client, given[0].bytes, given[0].length, 0);
    code = memcached_cas(client, given[0].bytes, given[0].length, given[1].bytes, given[1].length, 0, 0, token);
    print_done(client, code);
}

static void set_all(memcached_st *client, const struct argument *given, size_t count)
{
    memcached_return_t code = MEMCACHED_SUCCESS;
    for (size_t at = 0; at + 1 < count && memcached_success(code); at += 2)
        code = set(client, &given[at], given[at + 1].bytes, given[at + 1].length);
    print_done(client, code);
}

/* The statistics that are asked for, and which of them were found. */
struct wanted {
    const struct argument *names;
    size_t count;
    bool found[ARGUMENTS_MAX];
};

static memcached_return_t found_one(const memcached_instance_st *server, const char *key, size_t key_length,
                                    const char *value, size_t value_length, void *context)
{
    (void)server, (void)value, (void)value_length;
    struct wanted *wanted = context;
    for (size_t at = 0; at < wanted->count; at++) {
        const char *name = wanted->names[at].text;
        wanted->found[at] |= strlen(name) == key_length && memcmp(name, key, key_length) == 0;
    }
    return MEMCACHED_SUCCESS;
}

static void stats(memcached_st *client, const struct argument *given, size_t count)
{
    struct wanted wanted = {given + 1, count - 1, {false}};
    const char *section = strcmp(given[0].text, "-") == 0 ? NULL : given[0].text;
    memcached_return_t code = memcached_stat_execute(client, section, found_one, &wanted);
    if (!memcached_success(code)) {
        print_error(client, code);
        return;
    }
    bool is_whole = true;
    for (size_t at = 0; at < wanted.count; at++) {
        if (!wanted.found[at]) {
            printf("%s %s", is_whole ? "lacks" : "", wanted.names[at].text);
            is_whole = false;
        }
    }
    if (is_whole)
        printf("yes");
}

static void version(memcached_st *client)
{
    memcached_return_t code = memcached_version(client);
    if (!memcached_success(code)) {
        print_error(client, code);
        return;
    }
    const memcached_instance_st *server = memcached_server_instance_by_position(client, 0);
    char text[32];
    int length = snprintf(text, sizeof text, "%d.%d.%d", memcached_server_major_version(server),
                          memcached_server_minor_version(server), memcached_server_micro_version(server));
    printf("value ");
    print_hex(text, (size_t)length);
}

/* Stores or deletes without an answer. */
static void quietly(memcached_st *client, const char *operation, const struct argument *given)
{
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NOREPLY, 1);
    if (strcmp(operation, "quiet_set") == 0)
        print_done(client, set(client, &given[0], given[1].bytes, given[1].length));
    else
        print_done(client, memcached_delete(client, given[0].bytes, given[0].length, 0));
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_NOREPLY, 0);
}

typedef memcached_return_t (*store)(memcached_st *, const char *, size_t, const char *, size_t, time_t, uint32_t);

static bool stored(memcached_st *client, const char *operation, const struct argument *given, size_t count)
{
    static const struct { const char *name; store function; } STORES[] = {
        {"set", memcached_set}, {"add", memcached_add}, {"replace", memcached_replace},
        {"append", memcached_append}, {"prepend", memcached_prepend},
    };
    for (size_t at = 0; at < sizeof STORES / sizeof *STORES; at++) {
        if (strcmp(operation, STORES[at].name) == 0) {
            time_t ttl = count > 2 ? atoll(given[2].text) : 0;
            print_done(client, STORES[at].function(client, given[0].bytes, given[0].length, given[1].bytes,
                                                   given[1].length, ttl, 0));
            return true;
        }
    }
    return false;
}

static bool counted(memcached_st *client, const char *operation, const struct argument *given)
{
    const char *key = given[0].bytes;
    size_t length = given[0].length;
    uint64_t number = 0;
    memcached_return_t code;
    if (strcmp(operation, "incr") == 0)
        code = memcached_increment(client, key, length, (uint32_t)strtoull(given[1].text, NULL, 10), &number);
    else if (strcmp(operation, "decr") == 0)
        code = memcached_decrement(client, key, length, (uint32_t)strtoull(given[1].text, NULL, 10), &number);
    else if (strcmp(operation, "incr_initial") == 0)
        code = memcached_increment_with_initial(client, key, length, strtoull(given[1].text, NULL, 10),
                                                strtoull(given[2].text, NULL, 10), 0, &number);
    else if (strcmp(operation, "decr_initial") == 0)
        code = memcached_decrement_with_initial(client, key, length, strtoull(given[1].text, NULL, 10),
                                                strtoull(given[2].text, NULL, 10), 0, &number);
    else
        return false;
    print_number(client, code, number);
    return true;
}

static void perform(memcached_st *client, const char *operation, const struct argument *given, size_t count)
{
    bool is_binary = memcached_behavior_get(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL);
    if (!is_binary && strstr(operation, "_initial") != NULL)
        printf("unsupported");
    else if (stored(client, operation, given, count) || counted(client, operation, given))
        return;
    else if (strcmp(operation, "get") == 0)
        get(client, &given[0]);
    else if (strcmp(operation, "cas") == 0)
        compare_and_swap(client, given);
    else if (strcmp(operation, "delete") == 0)
        print_done(client, memcached_delete(client, given[0].bytes, given[0].length, 0));
    else if (strcmp(operation, "touch") == 0)
        print_done(client, memcached_touch(client, given[0].bytes, given[0].length, atoll(given[1].text)));
    else if (strcmp(operation, "mget") == 0)
        get_all(client, given, count);
    else if (strcmp(operation, "mset") == 0)
        set_all(client, given, count);
    else if (strncmp(operation, "quiet_", 6) == 0)
        quietly(client, operation, given);
    else if (strcmp(operation, "flush_all") == 0)
        print_done(client, memcached_flush(client, 0));
    else if (strcmp(operation, "version") == 0)
        version(client);
    else if (strcmp(operation, "stats") == 0)
        stats(client, given, count);
    else if (strcmp(operation, "quit") == 0)
        memcached_quit(client), printf("yes");
    else
        printf("unsupported");
}

static memcached_st *connect_to(const char *protocol, const char *address)
{
    memcached_st *client = memcached_create(NULL);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_BINARY_PROTOCOL, strcmp(protocol, "binary") == 0);
    /* Without it, a key with a line break sends two commands, and all later answers belong to other requests. */
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_VERIFY_KEY, strcmp(protocol, "text") == 0);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_SUPPORT_CAS, 1);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, LIMIT_MS);
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, LIMIT_MS);
    /* It counts some errors as failures of the server, and would then avoid the server for two seconds. */
    memcached_behavior_set(client, MEMCACHED_BEHAVIOR_RETRY_TIMEOUT, 0);
    const char *colon = strchr(address, ':');
    char *host = strndup(address, (size_t)(colon - address));
    memcached_server_add(client, host, (in_port_t)atoi(colon + 1));
    free(host);
    return client;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    int servers = argc - 6;
    memcached_st **clients = calloc((size_t)servers, sizeof *clients);
    for (int server = 0; server < servers; server++)
        clients[server] = connect_to(argv[2], argv[6 + server]);
    FILE *lines = fopen(argv[5], "r");
    if (lines == NULL)
        return perror(argv[5]), 1;
    char *line = NULL;
    size_t space = 0;
    for (int number = 0; getline(&line, &space, lines) > 0; number++) {
        char *rest = line;
        line[strcspn(line, "\n")] = 0;
        const char *operation = strsep(&rest, "\t");
        struct argument given[ARGUMENTS_MAX];
        size_t count = 0;
        while (rest != NULL && count < ARGUMENTS_MAX) {
            given[count].text = strsep(&rest, "\t");
            decode(&given[count++]);
        }
        if (strcmp(operation, "sleep") == 0) {
            usleep((useconds_t)atoi(given[0].text) * 1000);
        } else {
            for (int server = 0; server < servers; server++) {
                printf("%d %d ", number, server);
                perform(clients[server], operation, given, count);
                putchar('\n');
            }
        }
        for (size_t at = 0; at < count; at++)
            free(given[at].bytes);
    }
    return 0;
}
