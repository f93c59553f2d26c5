/* Asks libmemcached which server owns each key.
 * usage: ketama_oracle plain|weighted|modula HOST PORT WEIGHT [HOST PORT WEIGHT ...] < keys, one a line
 * Port 0 means that HOST is the path of a Unix socket. Prints one server index a line. */
#include <libmemcached/memcached.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc < 5 || (argc - 2) % 3 != 0) return 2;
    memcached_st *client = memcached_create(NULL);
    /* Modula is the default, so nothing is set for it. */
    memcached_return_t set = MEMCACHED_SUCCESS;
    if (strcmp(argv[1], "weighted") == 0)
        set = memcached_behavior_set(client, MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED, 1);
    else if (strcmp(argv[1], "plain") == 0)
        set = memcached_behavior_set(client, MEMCACHED_BEHAVIOR_KETAMA, 1);
    if (set != MEMCACHED_SUCCESS) return 3;
    for (int i = 2; i < argc; i += 3) {
        int port = atoi(argv[i + 1]);
        uint32_t weight = (uint32_t) strtoul(argv[i + 2], NULL, 10);
        memcached_return_t added =
            port == 0 ? memcached_server_add_unix_socket_with_weight(client, argv[i], weight)
                      : memcached_server_add_with_weight(client, argv[i], (in_port_t) port, weight);
        if (added != MEMCACHED_SUCCESS) return 4;
    }
    char line[512];
    while (fgets(line, sizeof line, stdin)) {
        size_t bytes = strcspn(line, "\n");
        printf("%u\n", memcached_generate_hash(client, line, bytes));
    }
    memcached_free(client);
    return 0;
}
