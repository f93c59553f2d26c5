// A cache as a Thrift service: what the near-cache RPC engine's memcached workload calls.
namespace py rebate.memcached
namespace cpp rebate.memcached

/** Why a value was not stored. */
exception CacheError {
  1: string message
}

struct Found {
  1: required bool hit
  2: optional binary value
  3: optional i32 flags
}

service Memcached {
  /** Expiry as memcached reads it: 0 never, up to 30 days from now, else Unix time. */
  void Set(1: required binary key, 2: required binary value, 3: i32 flags, 4: i32 expiry_s)
    throws (1: CacheError error)

  Found Get(1: required binary key)
}
