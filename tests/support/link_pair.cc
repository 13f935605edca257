#include "support/link_pair.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <stdexcept>
#include <utility>

#include "base/system_error.h"
#include "conn/tcp.h"
#include "support/scale.h"

namespace leat::detail {

Link& LinkOutcome::get() {
  EXPECT_FALSE(error) << text();
  if (!link) throw std::runtime_error("no link: " + text());
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

Prepare prepare_saying(const std::string& word) {
  return [word](Link&) {
    const auto bytes = std::as_bytes(std::span(word));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
}

ListeningSide::ListeningSide(Settings settings, Prepare prepare)
    : settings_(std::move(settings)), prepare_(std::move(prepare)) {
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
    outcome_.link =
        accept_link(std::move(newcomer), settings_, prepare_, {[](Stream*) {}, [](LastWord) {}});
  } catch (const Error& error) {
    outcome_.error = error;
  }
}

LinkOutcome connect_to(const Uri& uri, const Settings& settings, const Prepare& prepare) {
  LinkOutcome outcome;
  try {
    outcome.link = connect_link(uri, settings, prepare);
  } catch (const Error& error) {
    outcome.error = error;
  }
  return outcome;
}

LinkPair::LinkPair(const Settings& active_settings, const Settings& passive_settings,
                   const Prepare& active_prepare, const Prepare& passive_prepare) {
  ListeningSide listening(passive_settings, passive_prepare);
  active = connect_to(listening.uri(), active_settings, active_prepare);
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
