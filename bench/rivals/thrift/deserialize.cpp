// Reads recorded messages with the stock C++ library and says how long that takes: one side of rpc_deserialize.py.
//
// Usage: deserialize FOLDER. A line on standard input is `VARIANT FILE ROUNDS`; the answer is nanoseconds a message, or
// without rounds the message written again, in hexadecimal. The variants: `templates` is the fastest use that the
// library has, code generated for the concrete protocol and transport (--gen cpp:templates), into one object that is
// used again; `processor` is what its generated servers do, protocols behind virtual functions and a new object for
// each message.

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>

#include "Memcached.cpp"
#include "PostStorageService.cpp"
#include "UniqueIdService.cpp"
#include "memcached_types.cpp"
#include "post_storage_types.cpp"
#include "unique_id_types.cpp"

using apache::thrift::protocol::TBinaryProtocolT;
using apache::thrift::protocol::TMessageType;
using apache::thrift::protocol::TProtocol;
using apache::thrift::transport::TMemoryBuffer;
using Binary = TBinaryProtocolT<TMemoryBuffer>;

namespace {

// As many lie one behind the other as for the other sides.
constexpr unsigned COPIES = 32;

struct Head {
  std::string name;
  TMessageType type;
  int32_t sequence;
};

std::shared_ptr<TMemoryBuffer> observed(std::string& bytes) {
  auto* begin = reinterpret_cast<uint8_t*>(&bytes[0]);
  return std::make_shared<TMemoryBuffer>(begin, static_cast<uint32_t>(bytes.size()));
}

template <class Protocol, class Message>
void read(Protocol& from, Head& head, Message& message) {
  from.readMessageBegin(head.name, head.type, head.sequence);
  message.read(&from);
  from.readMessageEnd();
}

// What was read is used, as far as the compiler knows.
template <class T> void used(T& value) { asm volatile("" : : "r"(&value) : "memory"); }

double since_ns(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begun).count();
}

template <class Message> double templates(std::string& stream, unsigned rounds) {
  Head head;
  Message message;
  auto begun = std::chrono::steady_clock::now();
  for (unsigned round = 0; round < rounds; ++round) {
    Binary protocol(observed(stream));
    for (unsigned copy = 0; copy < COPIES; ++copy) {
      read(protocol, head, message);
      used(message);
    }
  }
  return since_ns(begun) / (double(rounds) * COPIES);
}

template <class Message> double processor(std::string& stream, unsigned rounds) {
  auto begun = std::chrono::steady_clock::now();
  for (unsigned round = 0; round < rounds; ++round) {
    std::shared_ptr<TProtocol> protocol = std::make_shared<Binary>(observed(stream));
    for (unsigned copy = 0; copy < COPIES; ++copy) {
      Head head;
      Message message;
      read(*protocol, head, message);
      used(message);
    }
  }
  return since_ns(begun) / (double(rounds) * COPIES);
}

template <class Message> std::string again(std::string& bytes) {
  Head head;
  Message message;
  Binary from(observed(bytes));
  read(from, head, message);
  auto buffer = std::make_shared<TMemoryBuffer>();
  Binary to(buffer);
  to.writeMessageBegin(head.name, head.type, head.sequence);
  message.write(&to);
  to.writeMessageEnd();
  std::string hex;
  for (unsigned char byte : buffer->getBufferAsString()) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    hex += digits;
  }
  return hex;
}

struct Kind {
  double (*templates)(std::string&, unsigned);
  double (*processor)(std::string&, unsigned);
  std::string (*again)(std::string&);
};

template <class Message> Kind of() {
  return {templates<Message>, processor<Message>, again<Message>};
}

const std::map<std::string, Kind> KINDS = {
    {"memcached.Set.call", of<rebate::memcached::Memcached_Set_args>()},
    {"memcached.Set.reply", of<rebate::memcached::Memcached_Set_result>()},
    {"memcached.Get.call", of<rebate::memcached::Memcached_Get_args>()},
    {"memcached.Get.reply", of<rebate::memcached::Memcached_Get_result>()},
    {"post_storage.StorePost.call", of<rebate::posts::PostStorageService_StorePost_args>()},
    {"post_storage.StorePost.reply", of<rebate::posts::PostStorageService_StorePost_result>()},
    {"post_storage.ReadPost.call", of<rebate::posts::PostStorageService_ReadPost_args>()},
    {"post_storage.ReadPost.reply", of<rebate::posts::PostStorageService_ReadPost_result>()},
    {"post_storage.ReadPosts.call", of<rebate::posts::PostStorageService_ReadPosts_args>()},
    {"post_storage.ReadPosts.reply", of<rebate::posts::PostStorageService_ReadPosts_result>()},
    {"unique_id.ComposeUniqueId.call", of<rebate::ids::UniqueIdService_ComposeUniqueId_args>()},
    {"unique_id.ComposeUniqueId.reply", of<rebate::ids::UniqueIdService_ComposeUniqueId_result>()},
};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string answer(const std::string& folder, const std::string& line) {
  std::istringstream words(line);
  std::string variant, file;
  unsigned rounds;
  if (!(words >> variant >> file >> rounds)) {
    throw std::runtime_error(line + " is not VARIANT FILE ROUNDS");
  }
  const Kind& kind = KINDS.at(file.substr(0, file.rfind('.')));
  std::string message = contents(folder + "/" + file), stream;
  if (rounds == 0) return kind.again(message);
  for (unsigned copy = 0; copy < COPIES; ++copy) stream += message;
  return std::to_string((variant == "processor" ? kind.processor : kind.templates)(stream, rounds));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: deserialize FOLDER\n";
    return 2;
  }
  try {
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << answer(arguments[1], line) << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
