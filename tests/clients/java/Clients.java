// Performs the operations of the client matrix with one of Java's memcached clients.
//
// Usage: Clients CLIENT PROTOCOL SECURITY CA OPERATIONS HOST:PORT...
// tests/clients/README.md describes the arguments, the operations and the lines that are printed.

import java.io.PrintStream;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.logging.Level;
import java.util.logging.Logger;
import net.rubyeye.xmemcached.GetsResponse;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.auth.AuthInfo;
import net.rubyeye.xmemcached.command.BinaryCommandFactory;
import net.spy.memcached.AddrUtil;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.auth.AuthDescriptor;
import net.spy.memcached.auth.PlainCallbackHandler;

public final class Clients {
    private static final String USER = "matrix";
    private static final String PASSWORD = "password-of-the-matrix";
    /** A server that is well may be silent for seconds where the host takes its core away. */
    private static final int LIMIT_MS = 60_000;

    /** A value with the token that a later compare-and-swap needs. */
    private record Read(Object value, long token) {}

    /** What both clients can do. */
    private interface Client {
        Object get(String key) throws Exception;

        Read gets(String key) throws Exception;

        boolean store(String operation, String key, Object value, int ttl) throws Exception;

        boolean cas(String key, byte[] value, long token) throws Exception;

        Object gat(String key, int ttl) throws Exception;

        Object count(String operation, String key, long by) throws Exception;

        Object countFrom(String operation, String key, long by, long initial) throws Exception;

        boolean delete(String key) throws Exception;

        boolean touch(String key, int ttl) throws Exception;

        Map<String, Object> getAll(List<String> keys) throws Exception;

        boolean flush() throws Exception;

        String version() throws Exception;

        Set<String> stats(String section) throws Exception;

        void quit() throws Exception;
    }

    private static final class Spymemcached implements Client {
        private final MemcachedClient client;

        Spymemcached(String protocol, String security, String address) throws Exception {
            var builder = new ConnectionFactoryBuilder()
                    .setProtocol(protocol.equals("binary")
                            ? ConnectionFactoryBuilder.Protocol.BINARY
                            : ConnectionFactoryBuilder.Protocol.TEXT)
                    .setOpTimeout(LIMIT_MS)
                    .setTimeoutExceptionThreshold(1000)
                    .setDaemon(true);
            if (security.equals("sasl")) {
                builder.setAuthDescriptor(new AuthDescriptor(
                        new String[] {"PLAIN"}, new PlainCallbackHandler(USER, PASSWORD)));
            }
            client = new MemcachedClient(builder.build(), AddrUtil.getAddresses(address));
        }

        public Object get(String key) {
            return client.get(key);
        }

        public Read gets(String key) {
            CASValue<Object> found = client.gets(key);
            return found == null ? null : new Read(found.getValue(), found.getCas());
        }

        public boolean store(String operation, String key, Object value, int ttl) throws Exception {
            return switch (operation) {
                case "set" -> client.set(key, ttl, value).get();
                case "add" -> client.add(key, ttl, value).get();
                case "replace" -> client.replace(key, ttl, value).get();
                case "append" -> client.append(key, value).get();
                default -> client.prepend(key, value).get();
            };
        }

        public boolean cas(String key, byte[] value, long token) {
            return client.cas(key, token, value) == CASResponse.OK;
        }

        public Object gat(String key, int ttl) {
            CASValue<Object> found = client.getAndTouch(key, ttl);
            return found == null ? null : found.getValue();
        }

        public Object count(String operation, String key, long by) {
            long value = operation.equals("incr") ? client.incr(key, by) : client.decr(key, by);
            return value == -1 ? null : value;
        }

        public Object countFrom(String operation, String key, long by, long initial) {
            return operation.equals("incr") ? client.incr(key, by, initial) : client.decr(key, by, initial);
        }

        public boolean delete(String key) throws Exception {
            return client.delete(key).get();
        }

        public boolean touch(String key, int ttl) throws Exception {
            return client.touch(key, ttl).get();
        }

        public Map<String, Object> getAll(List<String> keys) {
            return client.getBulk(keys);
        }

        public boolean flush() throws Exception {
            return client.flush().get();
        }

        public String version() {
            return client.getVersions().values().iterator().next();
        }

        public Set<String> stats(String section) {
            var pages = section.equals("-") ? client.getStats() : client.getStats(section);
            return pages.values().iterator().next().keySet();
        }

        public void quit() {
            client.shutdown();
        }
    }

    private static final class Xmemcached implements Client {
        private final net.rubyeye.xmemcached.MemcachedClient client;

        Xmemcached(String protocol, String security, String address) throws Exception {
            var builder = new XMemcachedClientBuilder(address);
            builder.setOpTimeout(LIMIT_MS);
            builder.setConnectTimeout(LIMIT_MS);
            if (protocol.equals("binary")) {
                builder.setCommandFactory(new BinaryCommandFactory());
            }
            if (security.equals("sasl")) {
                var server = net.rubyeye.xmemcached.utils.AddrUtil.getOneAddress(address);
                builder.addAuthInfo(server, AuthInfo.plain(USER, PASSWORD));
            }
            client = builder.build();
        }

        public Object get(String key) throws Exception {
            return client.get(key);
        }

        public Read gets(String key) throws Exception {
            GetsResponse<Object> found = client.gets(key);
            return found == null ? null : new Read(found.getValue(), found.getCas());
        }

        public boolean store(String operation, String key, Object value, int ttl) throws Exception {
            return switch (operation) {
                case "set" -> client.set(key, ttl, value);
                case "add" -> client.add(key, ttl, value);
                case "replace" -> client.replace(key, ttl, value);
                case "append" -> client.append(key, value);
                default -> client.prepend(key, value);
            };
        }

        public boolean cas(String key, byte[] value, long token) throws Exception {
            return client.cas(key, 0, value, token);
        }

        public Object gat(String key, int ttl) throws Exception {
            return client.getAndTouch(key, ttl);
        }

        public Object count(String operation, String key, long by) throws Exception {
            return operation.equals("incr") ? client.incr(key, by) : client.decr(key, by);
        }

        public Object countFrom(String operation, String key, long by, long initial) throws Exception {
            return operation.equals("incr") ? client.incr(key, by, initial) : client.decr(key, by, initial);
        }

        public boolean delete(String key) throws Exception {
            return client.delete(key);
        }

        public boolean touch(String key, int ttl) throws Exception {
            return client.touch(key, ttl);
        }

        public Map<String, Object> getAll(List<String> keys) throws Exception {
            var found = client.<Object>get(keys);
            return found == null ? Map.of() : found;
        }

        public boolean flush() throws Exception {
            client.flushAll();
            return true;
        }

        public String version() throws Exception {
            return client.getVersions().values().iterator().next();
        }

        public Set<String> stats(String section) throws Exception {
            var pages = section.equals("-") ? client.getStats() : client.getStatsByItem(section);
            return pages.values().iterator().next().keySet();
        }

        public void quit() throws Exception {
            client.shutdown();
        }
    }

    private static byte[] bytes(String hex) {
        return HexFormat.of().parseHex(hex);
    }

    private static String text(String hex) {
        return new String(bytes(hex), StandardCharsets.UTF_8);
    }

    private static String hex(byte[] value) {
        return HexFormat.of().formatHex(value);
    }

    private static String shown(Object found) {
        if (found == null) {
            return "miss";
        }
        if (found instanceof Boolean done) {
            return done ? "yes" : "no";
        }
        if (found instanceof byte[] value) {
            return "value " + hex(value);
        }
        if (found instanceof String value) {
            return "value " + hex(value.getBytes(StandardCharsets.UTF_8));
        }
        return found instanceof Number ? "number " + found : "value of " + found.getClass();
    }

    private static String shownAll(Client client, List<String> given) throws Exception {
        var keys = new ArrayList<>(new LinkedHashSet<>(given.stream().map(Clients::text).toList()));
        var found = client.getAll(keys);
        var result = new StringBuilder("values");
        for (String key : keys) {
            if (found.containsKey(key)) {
                String value = shown(found.get(key)).replace("value ", "");
                result.append(' ').append(hex(key.getBytes(StandardCharsets.UTF_8))).append('=').append(value);
            }
        }
        return result.toString();
    }

    private static Object compareAndSwap(Client client, List<String> given) throws Exception {
        String key = text(given.get(0));
        Read read = client.gets(key);
        if (read == null) {
            return null;
        }
        switch (given.get(2)) {
            case "set" -> client.store("set", key, "other".getBytes(StandardCharsets.UTF_8), 0);
            case "delete" -> client.delete(key);
            default -> { }
        }
        return client.cas(key, bytes(given.get(1)), read.token());
    }

    private static String missing(Set<String> found, List<String> wanted) {
        var missing = wanted.stream().filter(name -> !found.contains(name)).toList();
        return missing.isEmpty() ? "yes" : "lacks " + String.join(" ", missing);
    }

    private static String perform(Client client, String operation, List<String> given) throws Exception {
        String key = given.isEmpty() || operation.equals("stats") ? "" : text(given.get(0));
        switch (operation) {
            case "mget":
                return shownAll(client, given);
            case "mset":
                for (int at = 0; at < given.size(); at += 2) {
                    client.store("set", text(given.get(at)), bytes(given.get(at + 1)), 0);
                }
                return "yes";
            case "stats":
                return missing(client.stats(given.get(0)), given.subList(1, given.size()));
            case "quit":
                client.quit();
                return "yes";
            default:
                return shown(result(client, operation, key, given));
        }
    }

    private static Object result(Client client, String operation, String key, List<String> given)
            throws Exception {
        return switch (operation) {
            case "get" -> client.get(key);
            case "gat" -> client.gat(key, Integer.parseInt(given.get(1)));
            case "set", "add", "replace" ->
                client.store(operation, key, bytes(given.get(1)), Integer.parseInt(given.get(2)));
            case "set_number" -> client.store("set", key, Integer.parseInt(given.get(1)), 0);
            case "append", "prepend" -> client.store(operation, key, bytes(given.get(1)), 0);
            case "cas" -> compareAndSwap(client, given);
            case "incr", "decr" -> client.count(operation, key, new BigInteger(given.get(1)).longValue());
            case "incr_initial", "decr_initial" -> client.countFrom(operation.substring(0, 4), key,
                    Long.parseLong(given.get(1)), Long.parseLong(given.get(2)));
            case "delete" -> client.delete(key);
            case "touch" -> client.touch(key, Integer.parseInt(given.get(1)));
            case "flush_all" -> client.flush();
            case "version" -> client.version();
            default -> throw new UnsupportedOperationException();
        };
    }

    private static String resultOrError(Client client, String operation, List<String> given) {
        try {
            return perform(client, operation, given);
        } catch (UnsupportedOperationException absent) {
            return "unsupported";
        } catch (Exception thrown) {
            Throwable error = thrown;
            while (error.getCause() != null) {
                error = error.getCause();
            }
            return "error " + error.getClass().getSimpleName() + " "
                    + String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
        }
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        Logger.getLogger("net.spy.memcached").setLevel(Level.OFF);
        var clients = new ArrayList<Client>();
        for (String address : Arrays.copyOfRange(args, 5, args.length)) {
            clients.add(args[0].equals("spymemcached")
                    ? new Spymemcached(args[1], args[2], address)
                    : new Xmemcached(args[1], args[2], address));
        }
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        var lines = Files.readAllLines(Path.of(args[4]), StandardCharsets.US_ASCII);
        for (int number = 0; number < lines.size(); number++) {
            var words = List.of(lines.get(number).split("\t", -1));
            if (words.get(0).equals("sleep")) {
                Thread.sleep(Long.parseLong(words.get(1)));
                continue;
            }
            for (int server = 0; server < clients.size(); server++) {
                var result = resultOrError(clients.get(server), words.get(0), words.subList(1, words.size()));
                out.println(number + " " + server + " " + result);
            }
        }
        System.exit(0);
    }
}
