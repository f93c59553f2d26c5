<?php
// Performs the operations of the client matrix with one of PHP's memcached extensions.
//
// Usage: clients.php CLIENT PROTOCOL SECURITY CA OPERATIONS HOST:PORT...
// tests/clients/README.md describes the arguments, the operations and the lines that are printed.

const USER = 'matrix';
const PASSWORD = 'password-of-the-matrix';
// A server that is well may be silent for seconds where the host takes its core away.
const LIMIT_MS = 60000;

class Unsupported extends Exception {}

class MemcachedClient {
    private Memcached $client;

    public function __construct(string $protocol, string $security, string $address) {
        [$host, $port] = explode(':', $address);
        $this->client = new Memcached();
        $this->client->setOptions([
            Memcached::OPT_BINARY_PROTOCOL => $protocol === 'binary',
            Memcached::OPT_CONNECT_TIMEOUT => LIMIT_MS,
            Memcached::OPT_POLL_TIMEOUT => LIMIT_MS,
            Memcached::OPT_TCP_NODELAY => true,
            // It counts some errors as failures of the server, and would then avoid the server for two seconds.
            Memcached::OPT_RETRY_TIMEOUT => 0,
        ]);
        if ($security === 'sasl') {
            $this->client->setSaslAuthData(USER, PASSWORD);
        }
        $this->client->addServer($host, (int) $port);
    }

    /** Returns the result, or what the client says about its failure. */
    private function result($found) {
        $code = $this->client->getResultCode();
        if ($found !== false || $code === Memcached::RES_SUCCESS) {
            return $found;
        }
        if ($code === Memcached::RES_NOTSTORED || $code === Memcached::RES_DATA_EXISTS) {
            return false;
        }
        if ($code === Memcached::RES_NOTFOUND) {
            return null;
        }
        throw new Exception($this->client->getResultMessage());
    }

    /** A key that is not there is the answer "no" of an operation that has no value. */
    private function done($found): bool {
        return $this->result($found) === true;
    }

    public function get($key) { return $this->result($this->client->get($key)); }
    public function set($key, $value, $ttl) { return $this->done($this->client->set($key, $value, $ttl)); }
    public function add($key, $value, $ttl) { return $this->done($this->client->add($key, $value, $ttl)); }
    public function replace($key, $value, $ttl) {
        return $this->done($this->client->replace($key, $value, $ttl));
    }
    public function delete($key) { return $this->done($this->client->delete($key)); }
    public function touch($key, $ttl) { return $this->done($this->client->touch($key, $ttl)); }
    public function append($key, $value) { return $this->extend('append', $key, $value); }
    public function prepend($key, $value) { return $this->extend('prepend', $key, $value); }

    private function extend($operation, $key, $value) {
        // The extension refuses to extend values that it might have compressed.
        $this->client->setOption(Memcached::OPT_COMPRESSION, false);
        $found = $this->done($this->client->$operation($key, $value));
        $this->client->setOption(Memcached::OPT_COMPRESSION, true);
        return $found;
    }

    public function gets($key) {
        $found = $this->result($this->client->get($key, null, Memcached::GET_EXTENDED));
        return $found === null ? null : $found['cas'];
    }

    public function cas($key, $value, $token) { return $this->done($this->client->cas($token, $key, $value)); }
    public function incr($key, $by) { return $this->result($this->client->increment($key, $by)); }
    public function decr($key, $by) { return $this->result($this->client->decrement($key, $by)); }
    public function incr_initial($key, $by, $initial) {
        return $this->result($this->client->increment($key, $by, $initial));
    }
    public function decr_initial($key, $by, $initial) {
        return $this->result($this->client->decrement($key, $by, $initial));
    }
    public function mget(...$keys) { return $this->result($this->client->getMulti($keys)); }
    public function mset($values) { return $this->done($this->client->setMulti($values)); }
    public function mdelete(...$keys) {
        return !in_array(false, array_map(fn($done) => $done === true, $this->client->deleteMulti($keys)));
    }
    public function flush_all() { return $this->done($this->client->flush()); }
    public function version() { return current($this->client->getVersion()); }
    public function stats($section) {
        $pages = $section === '-' ? $this->client->getStats() : $this->client->getStats($section);
        return array_keys(current($this->result($pages)));
    }
    public function keys() { return is_array($this->result($this->client->getAllKeys())); }
    public function quit() { return $this->client->quit(); }
}

class MemcacheClient {
    private Memcache $client;

    public function __construct(string $protocol, string $security, string $address) {
        ini_set('memcache.protocol', $protocol === 'binary' ? 'binary' : 'ascii');
        [$host, $port] = explode(':', $address);
        $this->client = new Memcache();
        // It counts some answers as failures of the server, and would then avoid the server for 15 seconds.
        $this->client->addServer($host, (int) $port, false, 1, LIMIT_MS / 1000, 0);
        $this->client->setCompressThreshold(2000);
    }

    private function found($found) { return $found === false ? null : $found; }

    public function get($key) { return $this->found($this->client->get($key)); }
    public function set($key, $value, $ttl) { return $this->client->set($key, $value, 0, $ttl); }
    public function add($key, $value, $ttl) { return $this->client->add($key, $value, 0, $ttl); }
    public function replace($key, $value, $ttl) { return $this->client->replace($key, $value, 0, $ttl); }
    public function append($key, $value) { return $this->client->append($key, $value, 0, 0); }
    public function prepend($key, $value) { return $this->client->prepend($key, $value, 0, 0); }
    public function gets($key) {
        $flags = $token = null;
        return $this->client->get($key, $flags, $token) === false ? null : $token;
    }
    public function cas($key, $value, $token) { return $this->client->cas($key, $value, 0, 0, $token); }
    public function incr($key, $by) { return $this->found($this->client->increment($key, $by)); }
    public function decr($key, $by) { return $this->found($this->client->decrement($key, $by)); }
    public function incr_initial($key, $by, $initial) {
        return $this->found($this->client->increment($key, $by, $initial));
    }
    public function decr_initial($key, $by, $initial) {
        return $this->found($this->client->decrement($key, $by, $initial));
    }
    public function delete($key) { return $this->client->delete($key); }
    public function mget(...$keys) { return $this->client->get($keys) ?: []; }
    public function flush_all() { return $this->client->flush(); }
    public function version() { return $this->client->getVersion(); }
    public function stats($section) {
        $found = $section === '-' ? $this->client->getStats() : $this->client->getStats($section);
        return array_keys($found === false ? throw new Exception('no statistics') : $found);
    }
    public function quit() { return $this->client->close(); }
}

const CLIENTS = ['memcached' => MemcachedClient::class, 'memcache' => MemcacheClient::class];

// How to read the arguments: bytes in hex, integers, words. The last letter holds for all further arguments.
const KINDS = [
    'set' => 'bbi', 'add' => 'bbi', 'replace' => 'bbi', 'quiet_set' => 'bbi', 'touch' => 'bi', 'gat' => 'bi',
    'incr' => 'bi', 'decr' => 'bi', 'set_number' => 'bii', 'cas' => 'bbw', 'incr_initial' => 'bii',
    'decr_initial' => 'bii', 'stats' => 'w',
];

function read(string $kind, string $text) {
    return match ($kind) { 'b' => hex2bin($text), 'i' => (int) $text, 'w' => $text };
}

function call($client, string $operation, ...$given) {
    if (!method_exists($client, $operation)) {
        throw new Unsupported();
    }
    return $client->$operation(...$given);
}

function perform($client, string $operation, array $given) {
    switch ($operation) {
        case 'set_number':
            return $client->set(...$given);
        case 'cas':
            [$key, $value, $meanwhile] = $given;
            $token = call($client, 'gets', $key);
            if ($token === null) {
                return null;
            }
            $meanwhile === 'set' && $client->set($key, 'other', 0);
            $meanwhile === 'delete' && $client->delete($key);
            return $client->cas($key, $value, $token);
        case 'mset':
            $values = [];
            for ($at = 0; $at < count($given); $at += 2) {
                $values[$given[$at]] = $given[$at + 1];
            }
            if (method_exists($client, 'mset')) {
                return $client->mset($values);
            }
            foreach ($values as $key => $value) {
                $client->set($key, $value, 0);
            }
            return true;
        case 'stats':
            return call($client, 'stats', $given[0]);
        default:
            return call($client, $operation, ...$given);
    }
}

function shown(string $operation, array $given, $found): string {
    if ($operation === 'stats') {
        $missing = array_diff(array_slice($given, 1), $found);
        return $missing ? 'lacks ' . implode(' ', $missing) : 'yes';
    }
    if (is_array($found)) {
        $keys = array_filter(array_unique($given), fn($key) => array_key_exists($key, $found));
        $pairs = array_map(fn($key) => ' ' . bin2hex($key) . '=' . bin2hex((string) $found[$key]), $keys);
        return 'values' . implode('', $pairs);
    }
    return match (true) {
        $found === null => 'miss',
        is_bool($found) => $found ? 'yes' : 'no',
        is_int($found) || is_float($found) => "number $found",
        default => 'value ' . bin2hex((string) $found),
    };
}

ini_set('display_errors', 'stderr');
ini_set('log_errors', '0');
ini_set('memory_limit', '512M');
[, $name, $protocol, $security, , $operations] = $argv;
$clients = [];
foreach (array_slice($argv, 6) as $address) {
    $clients[] = new (CLIENTS[$name])($protocol, $security, $address);
}
foreach (file($operations, FILE_IGNORE_NEW_LINES) as $number => $line) {
    $texts = explode("\t", $line);
    $operation = array_shift($texts);
    if ($operation === 'sleep') {
        usleep((int) $texts[0] * 1000);
        continue;
    }
    $kinds = KINDS[$operation] ?? 'b';
    $given = [];
    foreach ($texts as $at => $text) {
        $given[] = read($kinds[min($at, strlen($kinds) - 1)], $text);
    }
    foreach ($clients as $server => $client) {
        try {
            $result = shown($operation, $given, perform($client, $operation, $given));
        } catch (Unsupported) {
            $result = 'unsupported';
        } catch (Throwable $error) {
            $result = 'error ' . str_replace("\n", ' ', $error->getMessage());
        }
        echo "$number $server $result\n";
    }
}
