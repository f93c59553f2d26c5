// The service `Memcached` on the stock C++ library, as its tutorial teaches: one thread for each connection, framed
// binary messages, a hash map behind a mutex. It serves Set and Get, which the workload calls. One side of
// rpc_cycles.py. It prints `listening on HOST:PORT`, and at SIGTERM where its threads' time went, in the words of
// `rebate rpc serve --time-stages`.
//
// The RPC layer is from a whole request in its buffer to the answer handed to the socket, less the handler; the network
// is all other CPU time of the connections' threads.

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include <pthread.h>

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/server/TThreadedServer.h>
#include <thrift/transport/TBufferTransports.h>
#include <thrift/transport/TServerSocket.h>
#include <thrift/transport/TVirtualTransport.h>

#include "Memcached.cpp"
#include "memcached_types.cpp"

using namespace apache::thrift;
using namespace rebate::memcached;
using Clock = std::chrono::steady_clock;

namespace {

int64_t now_ns() { return Clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

int64_t thread_cpu_ns() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

struct Stages {
  int64_t requests = 0, cpu_ns = 0, rpc_ns = 0, handler_ns = 0;
};

// Of the connection that this thread serves.
thread_local Stages here;
thread_local int64_t read_at_ns = 0;
std::mutex all_lock;
Stages all;

// A socket that notes when the RPC layer has a request, and when it gives the answer back.
class Noted : public transport::TVirtualTransport<Noted> {
 public:
  explicit Noted(std::shared_ptr<transport::TTransport> socket) : socket_(std::move(socket)) {}
  bool isOpen() const override { return socket_->isOpen(); }
  bool peek() override { return socket_->peek(); }
  void close() override { socket_->close(); }
  void flush() override { socket_->flush(); }

  uint32_t read(uint8_t* to, uint32_t length) {
    uint32_t got = socket_->read(to, length);
    read_at_ns = now_ns();
    return got;
  }

  void write(const uint8_t* from, uint32_t length) {
    here.rpc_ns += now_ns() - read_at_ns;
    ++here.requests;
    socket_->write(from, length);
  }

 private:
  std::shared_ptr<transport::TTransport> socket_;
};

class NotedFramed : public transport::TTransportFactory {
 public:
  std::shared_ptr<transport::TTransport> getTransport(
      std::shared_ptr<transport::TTransport> socket) override {
    auto noted = std::make_shared<Noted>(std::move(socket));
    return std::make_shared<transport::TFramedTransport>(std::move(noted));
  }
};

class InHandler {
 public:
  InHandler() : begun_ns_(now_ns()) {}
  ~InHandler() { here.handler_ns += now_ns() - begun_ns_; }

 private:
  int64_t begun_ns_;
};

class Cache : public MemcachedNull {
 public:
  void Set(const std::string& key, const std::string& value, const int32_t flags,
           const int32_t) override {
    InHandler noted;
    std::lock_guard<std::mutex> held(lock_);
    items_[key] = {value, flags};
  }

  void Get(Found& found, const std::string& key) override {
    InHandler noted;
    std::lock_guard<std::mutex> held(lock_);
    auto item = items_.find(key);
    found.__set_hit(item != items_.end());
    if (item == items_.end()) return;
    found.__set_value(item->second.value);
    found.__set_flags(item->second.flags);
  }

 private:
  struct Item {
    std::string value;
    int32_t flags;
  };
  std::mutex lock_;
  std::unordered_map<std::string, Item> items_;
};

// One for each connection, on its thread, from its begin to its end.
class Connections : public server::TServerEventHandler {
 public:
  explicit Connections(std::shared_ptr<transport::TServerSocket> socket)
      : socket_(std::move(socket)) {}

  void preServe() override {
    std::printf("listening on 127.0.0.1:%d\n", socket_->getPort());
    std::fflush(stdout);
  }

  // On the connection's thread, whose time from its begin to its first request is next to nothing.
  void deleteContext(void*, std::shared_ptr<protocol::TProtocol>,
                     std::shared_ptr<protocol::TProtocol>) override {
    std::lock_guard<std::mutex> held(all_lock);
    all.requests += here.requests;
    all.cpu_ns += thread_cpu_ns();
    all.rpc_ns += here.rpc_ns - here.handler_ns;
    all.handler_ns += here.handler_ns;
  }

 private:
  std::shared_ptr<transport::TServerSocket> socket_;
};

void report() {
  double requests = all.requests ? double(all.requests) : 1;
  int64_t network_ns = all.cpu_ns - all.rpc_ns - all.handler_ns;
  std::printf("stages of %lld requests: network %.1f ns, rpc %.1f ns, handler %.1f ns a request\n",
              static_cast<long long>(all.requests), network_ns / requests, all.rpc_ns / requests,
              all.handler_ns / requests);
}

}  // namespace

int main() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  // Inherited by all threads: one waits for them.
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  auto socket = std::make_shared<transport::TServerSocket>("127.0.0.1", 0);
  auto processor = std::make_shared<MemcachedProcessor>(std::make_shared<Cache>());
  server::TThreadedServer server(processor, socket, std::make_shared<NotedFramed>(),
                                 std::make_shared<protocol::TBinaryProtocolFactory>());
  server.setServerEventHandler(std::make_shared<Connections>(socket));
  std::thread waiting([&] {
    int signal;
    sigwait(&ends, &signal);
    server.stop();
  });
  server.serve();
  waiting.join();
  report();
}
