// A program with Thrift's library for C++: it stores pages and reads those that others have stored.
// Usage: program read|write HOST PORT COUNT

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>
#include <thrift/transport/TSocket.h>

#include "Memcached.h"

using namespace apache::thrift;
using namespace rebate::memcached;

static std::string page(long number) {
    char part[256];
    std::snprintf(part, sizeof part,
                  "{\"id\":%ld,\"type\":\"order\",\"user\":{\"id\":%ld,\"plan\":\"team\"},"
                  "\"created\":\"2026-01-%02ld\"}",
                  number * 7919 % 999983, number * 104729 % 9999991, 1 + number % 28);
    std::string whole;
    for (long times = number % 100 == 99 ? number : 1; times > 0; --times) whole += part;
    return whole;
}

static void expect(bool is_right, const std::string& what) {
    if (is_right) return;
    std::cerr << what << std::endl;
    std::exit(1);
}

int main(int, char** arguments) {
    auto socket = std::make_shared<transport::TSocket>(arguments[2], std::atoi(arguments[3]));
    auto framed = std::make_shared<transport::TFramedTransport>(socket);
    MemcachedClient cache(std::make_shared<protocol::TBinaryProtocol>(framed));
    framed->open();
    const int count = std::atoi(arguments[4]);
    if (arguments[1] == std::string("write")) {
        for (int number = 0; number < count; ++number)
            cache.Set("page:" + std::to_string(number), page(number), number, 0);
    } else {
        std::vector<std::string> keys;
        for (int number = 0; number < count; ++number) {
            keys.push_back("page:" + std::to_string(number));
            Item item;
            cache.Gets(item, keys.back());
            expect(item.hit && item.value == page(number) && item.flags == number, keys.back());
        }
        std::map<std::string, Item> items;
        cache.GetMany(items, keys);
        expect(items.size() == keys.size(), "all items at once");
        for (int number = 0; number < count; ++number)
            expect(items[keys[number]].value == page(number), keys[number] + " of many");
    }
    Number counted;
    Stored stored;
    cache.Set("number", "41", 0, 0);
    cache.Increment(counted, "number", 1);
    expect(counted.hit && counted.value == 42, "the number");
    cache.Add(stored, "number", "0", 0, 0);
    expect(stored.outcome == Outcome::NOT_STORED, "a second add");
    try {
        cache.Set(std::string(251, 'k'), "value", 0, 0);
        expect(false, "a long key");
    } catch (const CacheError& error) {
        expect(error.code == ErrorCode::INVALID_ARGUMENTS, error.message);
    }
    expect(cache.Delete("number") && !cache.Delete("number"), "one deletion");
    std::cout << count << " pages" << std::endl;
}
