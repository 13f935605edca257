// An echo server on Boost.Asio whose threads sleep in an io_context before it has any socket, and
// its client, which verifies every byte of 60 connections, prints a digest of each, and at last
// round trips a second.
//
// Usage: asio_echo server|client PORT THREADS
#include <utility>  // which Boost 1.74 leaves out

#include <boost/asio.hpp>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr std::uint64_t kConnectionsAtOnce = 20;
constexpr std::uint64_t kGenerations = 3;
constexpr std::uint64_t kRounds = 40;
constexpr std::size_t kLargeMessage = 300'000;

// Threads that run an io_context which has nothing to do yet, until it is stopped.
class Threads {
 public:
  Threads(asio::io_context& context, int count)
      : context_(context), work_(asio::make_work_guard(context)) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([&context] { context.run(); });
    }
  }
  ~Threads() {
    context_.stop();
    for (auto& thread : threads_) thread.join();
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  asio::io_context& context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::vector<std::thread> threads_;
};

// One connection of the server. Keeps itself alive by what it waits for.
class Session : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(tcp::socket socket) : socket_(std::move(socket)) {}

  void read() {
    socket_.async_read_some(asio::buffer(bytes_),
                            [self = shared_from_this()](auto error, auto size) {
                              if (!error) self->write(size);
                            });
  }

 private:
  void write(std::size_t size) {
    asio::async_write(socket_, asio::buffer(bytes_, size),
                      [self = shared_from_this()](auto error, auto) {
                        if (!error) self->read();
                      });
  }

  tcp::socket socket_;
  std::vector<char> bytes_ = std::vector<char>(65536);
};

void accept_next(tcp::acceptor& acceptor) {
  acceptor.async_accept([&acceptor](const boost::system::error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) throw boost::system::system_error(error);
    std::make_shared<Session>(std::move(socket))->read();
    accept_next(acceptor);
  });
}

void serve(std::uint16_t port, int thread_count) {
  asio::io_context context;
  tcp::acceptor acceptor(context);
  const Threads threads(context, thread_count);
  // open() adds the descriptor to the epoll set, which a thread waits for, and only later it
  // listens.
  const tcp::endpoint endpoint(asio::ip::address_v4::loopback(), port);
  acceptor.open(endpoint.protocol());
  acceptor.set_option(tcp::acceptor::reuse_address(true));
  acceptor.bind(endpoint);
  acceptor.listen();
  accept_next(acceptor);

  // In a context of its own, so that this thread has something to wait in.
  asio::io_context end;
  asio::signal_set signals(end, SIGTERM, SIGINT);
  signals.async_wait([](auto, auto) {});
  end.run();
}

// Bytes without short repetitions, other ones for each seed (xorshift).
std::vector<char> pattern(std::size_t size, std::uint64_t seed) {
  std::vector<char> bytes(size);
  auto state = seed * 0x9e3779b97f4a7c15U + 1;
  for (auto& byte : bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<char>(state >> 32);
  }
  return bytes;
}

// FNV-1a.
void add_to(std::uint64_t& digest, const std::vector<char>& bytes) {
  for (const char byte : bytes)
    digest = (digest ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
}

// One connection of the client: small messages one after the other, then a large one that comes
// back while it is still being sent. What it reads and writes takes place in a strand, because
// several threads run it. Keeps itself alive by what it waits for.
class Talk : public std::enable_shared_from_this<Talk> {
 private:
  // A handler that goes on with `next` after what went well; errors end the connection.
  template <typename Next>
  auto step(Next next, bool may_be_cancelled = false) {
    return [self = shared_from_this(), next, may_be_cancelled](
               const boost::system::error_code& error, auto&&...) {
      if (!error) {
        next(*self);
      } else if (error != asio::error::operation_aborted || !may_be_cancelled) {
        self->fail(error.message());
      }
    };
  }

 public:
  Talk(asio::io_context& context, std::uint64_t number)
      : number_(number), socket_(asio::make_strand(context)), patience_(socket_.get_executor()) {}

  // The digest of all that came back.
  std::future<std::uint64_t> result() { return result_.get_future(); }

  void start(const tcp::endpoint& server) {
    // The reactor's timers are in the epoll set, too.
    patience_.expires_after(std::chrono::seconds(50));
    patience_.async_wait(step([](Talk& talk) { talk.socket_.cancel(); }, true));
    socket_.async_connect(server, step([](Talk& talk) {
                            talk.socket_.set_option(tcp::no_delay(true));
                            talk.small();
                          }));
  }

 private:
  void small() {
    if (round_ == kRounds) {
      large();
      return;
    }
    message_ = pattern(1 + 997 * round_ % 5000, number_ * kRounds + round_);
    ++round_;
    answer_.resize(message_.size());
    asio::async_write(socket_, asio::buffer(message_), step([](Talk& talk) {
                        asio::async_read(talk.socket_, asio::buffer(talk.answer_),
                                         talk.step([](Talk& again) {
                                           if (again.compare()) again.small();
                                         }));
                      }));
  }

  void large() {
    message_ = pattern(kLargeMessage, number_);
    answer_.clear();
    asio::async_write(socket_, asio::buffer(message_), step([](Talk& talk) {
                        if (!talk.ended_) talk.socket_.shutdown(tcp::socket::shutdown_send);
                      }));
    asio::async_read(socket_, asio::dynamic_buffer(answer_),
                     [self = shared_from_this()](const boost::system::error_code& error, auto) {
                       if (error != asio::error::eof) {
                         self->fail(error.message());
                       } else if (self->compare()) {
                         self->end([&] { self->result_.set_value(self->digest_); });
                       }
                     });
  }

  bool compare() {
    if (answer_ != message_) {
      fail("bytes came back changed");
      return false;
    }
    add_to(digest_, answer_);
    return true;
  }

  void fail(const std::string& why) {
    end([&] {
      result_.set_exception(std::make_exception_ptr(
          std::runtime_error("connection " + std::to_string(number_) + ": " + why)));
    });
  }

  template <typename Tell>
  void end(Tell tell) {
    if (std::exchange(ended_, true)) return;
    patience_.cancel();
    socket_.close();
    tell();
  }

  const std::uint64_t number_;
  tcp::socket socket_;
  asio::steady_timer patience_;
  std::uint64_t round_ = 0;
  std::vector<char> message_;
  std::vector<char> answer_;
  std::uint64_t digest_ = 0xcbf29ce484222325U;
  std::promise<std::uint64_t> result_;
  bool ended_ = false;
};

void ask(std::uint16_t port, int thread_count) {
  const tcp::endpoint server(asio::ip::address_v4::loopback(), port);
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t generation = 0; generation < kGenerations; ++generation) {
    asio::io_context context;
    const Threads threads(context, thread_count);
    std::vector<std::future<std::uint64_t>> digests;
    for (std::uint64_t i = 0; i < kConnectionsAtOnce; ++i) {
      const auto talk = std::make_shared<Talk>(context, generation * kConnectionsAtOnce + i);
      digests.push_back(talk->result());
      talk->start(server);
    }
    for (auto& digest : digests)
      std::printf("%016llx\n", static_cast<unsigned long long>(digest.get()));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const double round_trips = kGenerations * kConnectionsAtOnce * kRounds;
  std::printf("%g\n", round_trips / took.count());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw std::invalid_argument("usage: asio_echo server|client PORT THREADS");
    const auto port = static_cast<std::uint16_t>(std::stoi(argv[2]));
    (std::string_view(argv[1]) == "server" ? serve : ask)(port, std::stoi(argv[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "asio_echo: %s\n", error.what());
    return 1;
  }
}
