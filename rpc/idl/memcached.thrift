// memcached's commands as a Thrift service. `rebate serve --thrift-listen` serves all of them from the cache.
// `rebate rpc serve --service memcached`, the workload of the near-cache RPC engine, serves Set and Get.
//
// An argument has the same number in all functions that take it.
namespace py rebate.memcached
namespace cpp rebate.memcached

/** The reasons of a failure. The numbers are those of memcached's binary protocol. */
enum ErrorCode {
  NOT_FOUND = 1
  TOO_LARGE = 3
  INVALID_ARGUMENTS = 4
  NON_NUMERIC = 6
  UNAUTHENTICATED = 32
  DENIED = 36
  OUT_OF_MEMORY = 130
  INTERNAL = 132
  OVER_QUOTA = 133
  TEMPORARY = 134
}

/** Why a command failed. */
exception CacheError {
  1: string message
  2: ErrorCode code
}

struct Found {
  1: required bool hit
  2: optional binary value
  3: optional i32 flags
}

/** An item with its version. Without a hit, the other fields are absent. */
struct Item {
  1: required bool hit
  2: optional binary value
  3: optional i32 flags
  4: optional i64 cas
}

/** What became of a value. The numbers and names are those of memcached's text answers. */
enum Outcome {
  STORED = 0
  NOT_STORED = 1
  EXISTS = 2
  NOT_FOUND = 3
}

/** The outcome, and the version of the item if its value was stored. */
struct Stored {
  1: required Outcome outcome
  2: optional i64 cas
}

/** A number of 64 bits without a sign, in an i64. Without a hit it is absent. */
struct Number {
  1: required bool hit
  2: optional i64 value
}

service Memcached {
  /** Expiry as memcached reads it: 0 never, up to 30 days from now, else Unix time. */
  void Set(1: required binary key, 2: required binary value, 3: i32 flags, 4: i32 expiry_s)
    throws (1: CacheError error)

  Found Get(1: required binary key)

  /** A get with the version of the item, which Cas takes. */
  Item Gets(1: required binary key) throws (1: CacheError error)

  /** The items that are there, by key. */
  map<binary, Item> GetMany(9: required list<binary> keys) throws (1: CacheError error)

  /** A get that sets the item's expiry. */
  Item GetAndTouch(1: required binary key, 4: i32 expiry_s) throws (1: CacheError error)

  /** Stores the value if there is no item. */
  Stored Add(1: required binary key, 2: required binary value, 3: i32 flags, 4: i32 expiry_s)
    throws (1: CacheError error)

  /** Stores the value if there is an item. */
  Stored Replace(1: required binary key, 2: required binary value, 3: i32 flags, 4: i32 expiry_s)
    throws (1: CacheError error)

  /** Appends to the value of an item. Its flags and its expiry stay. */
  Stored Append(1: required binary key, 2: required binary value) throws (1: CacheError error)

  Stored Prepend(1: required binary key, 2: required binary value) throws (1: CacheError error)

  /** Stores the value if the item has this version. */
  Stored Cas(1: required binary key, 2: required binary value, 3: i32 flags, 4: i32 expiry_s,
    5: required i64 cas) throws (1: CacheError error)

  /** Returns whether there was an item. */
  bool Delete(1: required binary key) throws (1: CacheError error)

  /** Sets the item's expiry, and returns whether there was an item. */
  bool Touch(1: required binary key, 4: i32 expiry_s) throws (1: CacheError error)

  /** Adds to an item whose value is a decimal number. It wraps after 64 bits. */
  Number Increment(1: required binary key, 6: required i64 delta) throws (1: CacheError error)

  /** Subtracts from an item whose value is a decimal number. The result is at least 0. */
  Number Decrement(1: required binary key, 6: required i64 delta) throws (1: CacheError error)

  /** Removes all items, after a delay if there is one. */
  void FlushAll(7: i32 delay_s) throws (1: CacheError error)

  string Version() throws (1: CacheError error)

  /** A page of statistics, by name. Without a page it is the general one. */
  map<string, string> Stats(8: string page) throws (1: CacheError error)
}
