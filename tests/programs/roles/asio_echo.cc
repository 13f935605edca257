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
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

namespace asio = boost::asio;
using asio::use_awaitable;
using asio::ip::tcp;

constexpr int kConnectionsAtOnce = 20;
constexpr int kGenerations = 3;
constexpr int kRounds = 40;
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

asio::awaitable<void> echo(tcp::socket socket) {
  std::vector<char> bytes(65536);
  boost::system::error_code error;
  for (;;) {
    const auto size = co_await socket.async_read_some(asio::buffer(bytes),
                                                      asio::redirect_error(use_awaitable, error));
    if (error) break;
    co_await asio::async_write(socket, asio::buffer(bytes, size),
                               asio::redirect_error(use_awaitable, error));
    if (error) break;
  }
}

asio::awaitable<void> accept_all(tcp::acceptor& acceptor) {
  for (;;) {
    auto socket = co_await acceptor.async_accept(use_awaitable);
    const auto executor = socket.get_executor();
    asio::co_spawn(executor, echo(std::move(socket)), asio::detached);
  }
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
  asio::co_spawn(context, accept_all(acceptor), [](const std::exception_ptr& error) {
    if (error) std::rethrow_exception(error);
  });

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

asio::awaitable<void> write_all(tcp::socket& socket, const std::vector<char>& message) {
  co_await asio::async_write(socket, asio::buffer(message), use_awaitable);
  socket.shutdown(tcp::socket::shutdown_send);
}

// One connection: small messages one after the other, then a large one that comes back while it is
// still being sent.
asio::awaitable<std::uint64_t> talk(tcp::endpoint server, std::uint64_t number) {
  const auto executor = co_await asio::this_coro::executor;
  // The reactor's timers are in the epoll set, too.
  asio::steady_timer patience(executor, std::chrono::seconds(50));
  tcp::socket socket(executor);
  patience.async_wait([&socket](const boost::system::error_code& error) {
    if (!error) socket.cancel();
  });
  co_await socket.async_connect(server, use_awaitable);
  socket.set_option(tcp::no_delay(true));

  std::uint64_t digest = 0xcbf29ce484222325U;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const auto message = pattern(1 + 997 * round % 5000, number * kRounds + round);
    co_await asio::async_write(socket, asio::buffer(message), use_awaitable);
    std::vector<char> answer(message.size());
    co_await asio::async_read(socket, asio::buffer(answer), use_awaitable);
    if (answer != message)
      throw std::runtime_error("connection " + std::to_string(number) +
                               ": a message came back changed");
    add_to(digest, answer);
  }

  const auto message = pattern(kLargeMessage, number);
  asio::co_spawn(executor, write_all(socket, message), asio::detached);
  std::vector<char> answer;
  boost::system::error_code end;
  co_await asio::async_read(socket, asio::dynamic_buffer(answer),
                            asio::redirect_error(use_awaitable, end));
  if (end != asio::error::eof) throw boost::system::system_error(end);
  if (answer != message)
    throw std::runtime_error("connection " + std::to_string(number) +
                             ": the large message came back changed");
  add_to(digest, answer);
  patience.cancel();
  co_return digest;
}

void ask(std::uint16_t port, int thread_count) {
  const tcp::endpoint server(asio::ip::address_v4::loopback(), port);
  const auto begin = std::chrono::steady_clock::now();
  for (int generation = 0; generation < kGenerations; ++generation) {
    asio::io_context context;
    const Threads threads(context, thread_count);
    std::vector<std::future<std::uint64_t>> digests;
    for (int i = 0; i < kConnectionsAtOnce; ++i) {
      const auto number = static_cast<std::uint64_t>(generation * kConnectionsAtOnce + i);
      // A strand each, because several threads run what one connection reads and writes.
      digests.push_back(
          asio::co_spawn(asio::make_strand(context), talk(server, number), asio::use_future));
    }
    for (auto& digest : digests)
      std::printf("%016llx\n", static_cast<unsigned long long>(digest.get()));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%g\n", kGenerations * kConnectionsAtOnce * kRounds / took.count());
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
