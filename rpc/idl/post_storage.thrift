// Posts of a social network, stored and read: a message with nested structs, lists and a map.
namespace py rebate.posts
namespace cpp rebate.posts

enum PostType {
  POST = 0
  REPOST = 1
  REPLY = 2
  DM = 3
}

enum MediaKind {
  IMAGE = 0
  VIDEO = 1
}

exception ServiceException {
  1: i32 code
  2: string message
}

struct Creator {
  1: i64 user_id
  2: string username
}

struct Media {
  1: i64 media_id
  2: MediaKind kind
}

struct Url {
  1: string shortened
  2: string expanded
}

struct UserMention {
  1: i64 user_id
  2: string username
}

struct Post {
  1: i64 post_id
  2: Creator creator
  3: i64 req_id
  4: string text
  5: list<UserMention> user_mentions
  6: list<Media> media
  7: list<Url> urls
  8: i64 timestamp
  9: PostType post_type
}

service PostStorageService {
  void StorePost(1: i64 req_id, 2: required Post post, 3: map<string, string> carrier)
    throws (1: ServiceException error)

  Post ReadPost(1: i64 req_id, 2: i64 post_id, 3: map<string, string> carrier)
    throws (1: ServiceException error)

  list<Post> ReadPosts(1: i64 req_id, 2: list<i64> post_ids, 3: map<string, string> carrier)
    throws (1: ServiceException error)
}
