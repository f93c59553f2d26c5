// Performs the operations of the client matrix with one of Node's memcached clients.
//
// Usage: clients.js CLIENT PROTOCOL SECURITY CA OPERATIONS HOST:PORT...
// tests/clients/README.md describes the arguments, the operations and the lines that are printed.

"use strict";

const fs = require("fs");
const path = require("path");
const util = require("util");

// The packages are installed beside the build, not beside this file.
const load = (name) => require(path.join(process.env.NODE_PATH, name));
const USER = "matrix";
const PASSWORD = "password-of-the-matrix";
// A server that is well may be silent for seconds where the host takes its core away.
const LIMIT_MS = 60_000;

function memcached({ address }) {
  const Memcached = load("memcached");
  const client = new Memcached(address, {
    timeout: LIMIT_MS, retries: 0, failures: 1000, retry: 1, poolSize: 3, maxValue: 1 << 30,
  });
  const call = (name) => util.promisify(client[name]).bind(client);
  const stored = (name) => (...given) =>
    call(name)(...given).catch((error) => {
      if (/not stored/.test(error.message)) return false;
      throw error;
    });
  const names = async (pages) => [].concat(...(await pages).map(Object.keys));
  const pages = { "-": "stats", settings: "settings", items: "items", slabs: "slabs" };
  return {
    get: call("get"),
    set: (key, value, ttl) => call("set")(key, value, ttl),
    set_number: (key, value, ttl) => call("set")(key, value, ttl),
    add: stored("add"),
    replace: stored("replace"),
    append: stored("append"),
    prepend: stored("prepend"),
    async gets(key) {
      const found = await call("gets")(key);
      return found && { value: found[key], token: found.cas };
    },
    cas: (key, value, token) => call("cas")(key, value, token, 0),
    incr: async (key, by) => nothing(await call("incr")(key, Number(by)), false),
    decr: async (key, by) => nothing(await call("decr")(key, Number(by)), false),
    delete: call("del"),
    touch: call("touch"),
    mget: (...keys) => call("getMulti")(keys),
    flush_all: async () => (await call("flush")()).every((done) => done === true),
    version: async () => (await call("version")())[0].version,
    stats: (section) => names(call(pages[section])()),
    quit: () => client.end() === undefined,
  };
}

function memcacheClient({ address, security, ca }) {
  const { MemcacheClient } = load("memcache-client");
  const client = new MemcacheClient({
    server: address, cmdTimeout: LIMIT_MS, connectTimeout: LIMIT_MS,
    ...(security === "tls" ? { tls: { ca: fs.readFileSync(ca), servername: "localhost" } } : {}),
  });
  const answered = (promise, good, bad) =>
    promise.then(
      (lines) => [].concat(lines).join(" ") === good,
      (error) => {
        if (error.message === bad) return false;
        throw error;
      },
    );
  const stored = (name) => (key, value, ttl) =>
    answered(client[name](key, value, ttl === undefined ? {} : { lifetime: ttl }),
      "STORED", "NOT_STORED");
  const counted = (name) => (key, by) =>
    client[name](key, by).then((text) => ({ number: text }), (error) => {
      if (error.message === "NOT_FOUND") return undefined;
      throw error;
    });
  return {
    get: async (key) => (await client.get(key))?.value,
    set: stored("set"),
    set_number: stored("set"),
    add: stored("add"),
    replace: stored("replace"),
    append: stored("append"),
    prepend: stored("prepend"),
    async gets(key) {
      const found = await client.gets(key);
      return found && { value: found.value, token: found.casUniq };
    },
    cas: (key, value, token) =>
      answered(client.cas(key, value, { casUniq: token }), "STORED", "EXISTS"),
    incr: counted("incr"),
    decr: counted("decr"),
    delete: (key) => answered(client.delete(key), "DELETED", "NOT_FOUND"),
    touch: (key, ttl) => answered(client.touch(key, ttl), "TOUCHED", "NOT_FOUND"),
    async mget(...keys) {
      const found = await client.get(keys);
      return Object.fromEntries(Object.entries(found).map(([key, item]) => [key, item.value]));
    },
    quiet_set: async (key, value) =>
      (await client.set(key, value, { noreply: true })) === undefined || true,
    quiet_delete: async (key) => (await client.delete(key, { noreply: true })) === undefined || true,
    flush_all: () => answered(client.cmd("flush_all"), "OK", ""),
    version: async () => [].concat(await client.version()).join(" ").replace("VERSION ", ""),
    async stats(section) {
      const found = await client.cmd(section === "-" ? "stats" : `stats ${section}`);
      return found.STAT.map((pair) => pair[0]);
    },
    quit: async () => client.shutdown() === undefined,
  };
}

function memjs({ address, security }) {
  const { Client } = load("memjs");
  const client = Client.create(address, {
    timeout: LIMIT_MS / 1000, conntimeout: LIMIT_MS / 1000, retries: 1, keepAlive: true,
    ...(security === "sasl" ? { username: USER, password: PASSWORD } : {}),
  });
  const counted = (name, key, by, initial) =>
    client[name](key, Number(by), { initial: Number(initial), expires: 0 })
      .then(({ success, value }) => (success ? { number: value } : undefined));
  const get = async (key) => (await client.get(key)).value ?? undefined;
  return {
    get,
    set: (key, value, ttl) => client.set(key, value, { expires: ttl }),
    add: (key, value, ttl) => client.add(key, value, { expires: ttl }),
    replace: (key, value, ttl) => client.replace(key, value, { expires: ttl }),
    append: (key, value) => client.append(key, value),
    prepend: (key, value) => client.prepend(key, value),
    incr_initial: (key, by, initial) => counted("increment", key, by, initial),
    decr_initial: (key, by, initial) => counted("decrement", key, by, initial),
    incr: (key, by) => counted("increment", key, by, 0),
    decr: (key, by) => counted("decrement", key, by, 0),
    delete: (key) => client.delete(key),
    touch: (key, ttl) => client.touch(key, ttl),
    flush_all: async () => Object.values(await client.flush()).every((done) => done === true),
    stats: (section) =>
      new Promise((resolve, reject) => {
        const done = (error, _server, found) => (error ? reject(error) : resolve(Object.keys(found)));
        if (section === "-") client.stats(done);
        else client.statsWithKey(section, done);
      }),
    quit: () => client.quit() === undefined,
  };
}

const CLIENTS = { memcached, "memcache-client": memcacheClient, memjs };

// How to read the arguments: keys, values in hex, integers, words. The last letter holds for all further arguments.
const KINDS = {
  set: "kbi", add: "kbi", replace: "kbi", quiet_set: "kbi", append: "kb", prepend: "kb", touch: "ki",
  gat: "ki", incr: "kw", decr: "kw", set_number: "kii", cas: "kbw", incr_initial: "kww",
  decr_initial: "kww", stats: "w", mset: "x",
};
const bytes = (hex) => Buffer.from(hex, "hex");
const READ = { k: (hex) => bytes(hex).toString(), b: bytes, x: bytes, i: Number, w: String };

const nothing = (value, absent) => (value === absent ? undefined : value);
const hex = (value) => Buffer.from(value).toString("hex");

function shown(operation, given, result) {
  if (operation === "stats") {
    const missing = given.slice(1).filter((name) => !result.includes(name));
    return missing.length > 0 ? `lacks ${missing.join(" ")}` : "yes";
  }
  if (operation === "mget") {
    const found = new Map(Object.entries(result));
    const keys = [...new Set(given)].filter((key) => found.has(key));
    return ["values", ...keys.map((key) => `${hex(key)}=${hex(found.get(key))}`)].join(" ");
  }
  if (result === undefined || result === null) return "miss";
  if (typeof result === "boolean") return result ? "yes" : "no";
  if (typeof result === "number") return `number ${result}`;
  if (result.number !== undefined) return `number ${result.number}`;
  return `value ${hex(result)}`;
}

async function perform(client, operation, given) {
  if (operation === "cas") {
    const [key, value, meanwhile] = given;
    const found = await call(client, "gets", key);
    if (found?.value === undefined) return undefined;
    if (meanwhile === "set") await call(client, "set", key, Buffer.from("other"), 0);
    if (meanwhile === "delete") await call(client, "delete", key);
    return call(client, "cas", key, value, found.token);
  }
  if (operation === "mset") {
    for (let at = 0; at < given.length; at += 2) {
      await call(client, "set", given[at].toString(), given[at + 1], 0);
    }
    return true;
  }
  return call(client, operation, ...given);
}

class Unsupported extends Error {}

function call(client, operation, ...given) {
  if (client[operation] === undefined) throw new Unsupported();
  return client[operation](...given);
}

// Waits until the reader has taken the text.
const print = (text) => new Promise((resolve) => process.stdout.write(text, resolve));

async function main([name, protocol, security, ca, operations, ...addresses]) {
  const clients = addresses.map((address) => CLIENTS[name]({ address, protocol, security, ca }));
  const lines = fs.readFileSync(operations, "latin1").trimEnd().split("\n");
  for (const [number, line] of lines.entries()) {
    const [operation, ...texts] = line.split("\t");
    if (operation === "sleep") {
      await new Promise((resolve) => setTimeout(resolve, Number(texts[0])));
      continue;
    }
    const kinds = KINDS[operation] ?? "k";
    const given = texts.map((text, at) => READ[kinds[at] ?? kinds.at(-1)](text));
    for (const [server, client] of clients.entries()) {
      let result;
      try {
        result = shown(operation, given, await perform(client, operation, given));
      } catch (error) {
        if (error instanceof Unsupported) result = "unsupported";
        else result = `error ${[].concat(error).map((e) => e.message ?? e).join(" ")}`;
      }
      await print(`${number} ${server} ${result.replaceAll("\n", " ")}\n`);
    }
  }
  process.exit(0);
}

main(process.argv.slice(2));
