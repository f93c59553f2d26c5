//! The texts of `-h`, `-i` and `-V`. Callers search them to find out what a server can do, as memcached's tests do. So
//! they name only what is supported.

/// The text of `-V`.
pub(super) const VERSION: &str =
    concat!("rebate ", env!("CARGO_PKG_VERSION"), " (speaks memcached 1.6)");

/// The text of `-i`.
pub(super) const LICENSE: &str = concat!(
    "rebate ",
    env!("CARGO_PKG_VERSION"),
    "\n\nLicensed under the Apache License, Version 2.0:\nhttp://www.apache.org/licenses/LICENSE-2.0"
);

/// The text of `-h`, after the version.
pub(super) const HELP: &str = "
A compressed cache behind memcached's flags. Values are stored compressed; clients
see no difference.

-p, --port=<num>          TCP port (default: 11211; -1 takes a free one)
-l, --listen=<addr>       interfaces, separated by commas, each with an optional :port
                          (default: every interface; IPv6 with a port in brackets)
-s, --unix-socket=<file>  Unix socket; turns TCP off
-a, --unix-mask=<mask>    permission bits of the Unix socket, octal (default: 700)
-m, --memory-limit=<num>  memory for items in megabytes (default: 64)
-M, --disable-evictions   answer an error when memory is full instead of evicting
-X, --disable-dumping     do not let clients list the items
-W, --disable-watch       do not let clients watch what the server does
-F, --disable-flush-all   do not let clients remove all items at once
-A, --enable-shutdown     let clients end the process (shutdown)
-I, --max-item-size=<num> largest item by its uncompressed size (default: 1m, min: 1k,
                          max: 1024m)
-c, --conn-limit=<num>    client connections at most (default: 1024)
-t, --threads=<num>       worker threads (default: 4, max: 64)
-R, --max-reqs-per-event=<num>
                          commands of one connection before others get their turn
                          (default: 20)
-b, --listen-backlog=<num>
                          accept queue (default: 1024)
-B, --protocol=<name>     what clients may speak: ascii, binary, or auto for both, which the
                          first byte of a connection decides (default: auto)
-d, --daemon              run in the background
-u, --user=<user>         become this user (needed when run as root)
-P, --pidfile=<file>      write the process id to this file
-e, --memory-file=<file>  keep the items over a restart: save them to this file at the end
                          (SIGTERM, SIGINT, SIGUSR1), load them at the start
-Y, --auth-file=<file>    ask for a password: lines user:password, of which the first 8
                          count; a client's first set logs it in
-k, --lock-memory         keep all memory from being paged out
-r, --enable-coredumps    raise the limit on core files
-v, --verbose             log more (-vv, -vvv: more still)
-Z, --enable-ssl          TLS at every TCP address but those with the prefix notls:
                          (-l notls:<addr>); needs -o ssl_chain_cert
-h, --help                this text
-i, --license             the license
-V, --version             the version
-o, --extended=<list>     memcached's suboptions are accepted; those that tune what does
                          not exist here have no effect (-v says which)
   - watcher_logbuf_size: memory for the lines of a client that watches, in kilobytes
                          (default: 256)
   - ssl_chain_cert:      certificate chain file in PEM format
   - ssl_key:             private key in PEM, if it is not in that file
   - ssl_verify_mode:     certificates of clients: 0 none (default), 1 or 3 request,
                          2 require
   - ssl_ca_cert:         file with the authorities of clients' certificates, PEM
   - ssl_ciphers:         suites of TLS 1.2, by OpenSSL's names (default: all safe ones)
   - ssl_min_version:     oldest version: 2 TLS 1.2 (default), 3 TLS 1.3

-f, -n, -L, -C, -D and -N are accepted and have no effect (-v says so).
UDP (-U other than 0) and -S are refused.

Further settings come from the file that REBATE_CONFIG names and from
REBATE_SECTION__KEY variables; `rebate serve --print-config` lists them.

Examples:
  rebate memcached -m 1024 -l 127.0.0.1 -u nobody
  rebate memcached -d -P /run/rebate.pid -u nobody -c 10000 -t 4
  REBATE_COMPRESS__CODEC=lz4 rebate memcached -u nobody";
