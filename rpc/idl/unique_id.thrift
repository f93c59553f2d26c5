// Identifiers that no two posts share.
namespace py rebate.ids
namespace cpp rebate.ids

enum PostType {
  POST = 0
  REPOST = 1
  REPLY = 2
  DM = 3
}

service UniqueIdService {
  i64 ComposeUniqueId(1: i64 req_id, 2: PostType post_type, 3: map<string, string> carrier)
}
