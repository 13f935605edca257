#include "support/link_pair.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <stdexcept>
#include <utility>

#include "base/system_error.h"
#include "handshake/greeting.h"
#include "net/tcp.h"
#include "support/scale.h"

namespace leat::detail {
namespace {

class SmallDevice final : public Device {
 public:
  explicit SmallDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}
  const DeviceInfo& info() const override { return inner_->info(); }
  Limits limits() const override { return inner_->limits(); }
  std::unique_ptr<MemoryRegion> allocate(std::size_t bytes, unsigned access) override {
    if (bytes > kNoRingBytes)
      throw Error(ErrorCode::kResource, "no room for a ring on " + info().name);
    return inner_->allocate(bytes, access);
  }
  std::unique_ptr<Offer> offer(const QueueDepths& depths,
                               const std::string& local_address) override {
    return inner_->offer(depths, local_address);
  }
  std::unique_ptr<QueuePair> connect(std::span<const std::byte> blob, const QueueDepths& depths,
                                     Deadline deadline) override {
    return inner_->connect(blob, depths, deadline);
  }

 private:
  const std::unique_ptr<Device> inner_;
};

}  // namespace

Connection& LinkOutcome::get() {
  EXPECT_FALSE(error) << text();
  if (!link) throw std::runtime_error("no connection: " + text());
  return *link;
}

void LinkOutcome::expect_error(ErrorCode code, std::initializer_list<const char*> words) const {
  EXPECT_FALSE(link);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), code) << to_string(error->code()) << ": " << text();
  for (const char* word : words) {
    EXPECT_NE(text().find(word), std::string::npos) << "'" << word << "' is not in: " << text();
  }
}

Settings link_settings(const std::string& device, const std::string& transport) {
  Settings settings;
  settings.device = device;
  settings.transport = transport;
  settings.connect_timeout = hang_limit();
  settings.handshake_timeout = hang_limit();
  return settings;
}

NoMemoryForRings::NoMemoryForRings()
    : decorated_([](std::unique_ptr<Device> device) -> std::unique_ptr<Device> {
        return std::make_unique<SmallDevice>(std::move(device));
      }) {}

ListeningSide::ListeningSide(Settings settings) : settings_(std::move(settings)) {
  uri_.host = "127.0.0.1";
  socket_ = listen_tcp(uri_);
  uri_.port = bound_port(socket_.get());
  thread_ = std::thread([this] { run(); });
}

ListeningSide::~ListeningSide() {
  if (!thread_.joinable()) return;
  ::shutdown(socket_.get(), SHUT_RDWR);
  thread_.join();
}

LinkOutcome& ListeningSide::wait() {
  if (thread_.joinable()) thread_.join();
  return outcome_;
}

void ListeningSide::run() {
  try {
    wait_ready(socket_.get(), POLLIN, hang_deadline(), "nobody came");
    Fd newcomer(check(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept4"));
    outcome_.link = accept_connection(hear(std::move(newcomer), settings_), settings_,
                                      {[] {}, [](LastWord) {}});
  } catch (const Error& error) {
    outcome_.error = error;
  }
}

Heard hear(Fd newcomer, const Settings& settings) {
  using State = Greeting::State;
  Greeting greeting(std::move(newcomer), settings);
  std::optional<Error> error;
  for (;;) {
    const State state = greeting.advance();
    if (state == State::kHeard) return greeting.take_heard();
    if (auto why = greeting.take_error()) error = why;
    if (state == State::kOver) throw Error(error.value());
    pollfd entry{greeting.fd(), greeting.events(), 0};
    poll(&entry, 1, poll_timeout_ms(greeting.deadline()));
  }
}

LinkOutcome connect_to(const Uri& uri, const Settings& settings) {
  LinkOutcome outcome;
  try {
    outcome.link = open_connection(uri, settings);
  } catch (const Error& error) {
    outcome.error = error;
  }
  return outcome;
}

LinkPair::LinkPair(const Settings& active_settings, const Settings& passive_settings) {
  ListeningSide listening(passive_settings);
  active = connect_to(listening.uri(), active_settings);
  passive = std::move(listening.wait());
}

std::uint16_t bound_port(int socket) {
  const std::string address = local_address(socket);
  return static_cast<std::uint16_t>(std::stoul(address.substr(address.rfind(':') + 1)));
}

Fd raw_connection(const Uri& uri) {
  Fd socket = connect_tcp(uri, hang_deadline(), false);
  check(fcntl(socket.get(), F_SETFL, 0), "fcntl");
  return socket;
}

void raw_send(int socket, const void* bytes, std::size_t count) {
  const auto sent = send(socket, bytes, count, MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(count)) throw system_error("send", errno);
}

std::string raw_receive_all(int socket) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    const auto got = recv(socket, buffer.data(), buffer.size(), 0);
    if (got <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace leat::detail
