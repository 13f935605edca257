// The setting confidential of programs in C: by the environment and by URI.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <string>
#include <thread>

#include "capi/text.h"
#include "leat/c.h"
#include "support/channel_side.h"
#include "support/leaving_host.h"
#include "support/scratch.h"

namespace leat::detail {
namespace {

using testing::HasSubstr;

class CApiConfidential : public testing::Test {
 protected:
  static sockaddr_in some_port() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static const sockaddr* plain(const sockaddr_in& address) {
    return reinterpret_cast<const sockaddr*>(&address);
  }
  static std::string described(int handle) {
    std::array<char, 500> text{};
    EXPECT_GT(leat_description(handle, text.data(), text.size()), 0) << leat_last_error();
    return text.data();
  }

  const LeavingHost leaving_;
  const ScratchVariable require_{"LEAT_CONFIDENTIAL", "require"};
};

// As leat/names.h maps listen() and connect().
TEST_F(CApiConfidential, SocketsAreSealed) {
  const ScratchVariable key("LEAT_TLS_PSK_FILE", channel_key_file());
  const int listening = leat_socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = some_port();
  ASSERT_EQ(leat_bind(listening, plain(address), sizeof address), 0) << leat_last_error();
  ASSERT_EQ(leat_listen(listening, 4), 0) << leat_last_error();
  socklen_t bytes = sizeof address;
  ASSERT_EQ(leat_getsockname(listening, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  std::thread client([&] {
    const int handle = leat_socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(leat_connect(handle, plain(address), sizeof address), 0) << leat_last_error();
    EXPECT_THAT(described(handle), HasSubstr("sealed+ring"));
    send_text(handle, "secret");
    EXPECT_EQ(leat_close(handle), 0);
  });
  const int handle = leat_accept(listening, nullptr, nullptr);
  ASSERT_GE(handle, 0) << leat_last_error();
  EXPECT_THAT(described(handle), HasSubstr("sealed+ring"));
  std::array<char, 6> got{};
  EXPECT_EQ(leat_recv(handle, got.data(), got.size(), MSG_WAITALL), 6);
  EXPECT_EQ(std::string(got.data(), got.size()), "secret");
  EXPECT_EQ(leat_close(handle), 0);
  EXPECT_EQ(leat_close(listening), 0);
  client.join();
}

TEST_F(CApiConfidential, WithoutAKeyCallsFailAndSayHowToSetOne) {
  const auto expect_advice = [] {
    EXPECT_EQ(errno, EINVAL);
    EXPECT_THAT(leat_last_error(),
                testing::AllOf(HasSubstr("confidential = require"), HasSubstr("tls_psk_file")));
  };
  const sockaddr_in address = some_port();
  const int listening = leat_socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(leat_bind(listening, plain(address), sizeof address), 0);
  EXPECT_EQ(leat_listen(listening, 4), -1);
  expect_advice();
  EXPECT_EQ(leat_accept(listening, nullptr, nullptr), -1) << "it does not listen";
  EXPECT_EQ(leat_close(listening), 0);
  EXPECT_EQ(leat_listen_uri("leat://127.0.0.1:0?device=tcp"), -1);
  expect_advice();
  const int by_uri = leat_listen_uri("leat://127.0.0.1:0?device=tcp&confidential=off");
  ASSERT_GE(by_uri, 0) << leat_last_error() << ": a URI has the last word";
  sockaddr_in peer{};
  socklen_t bytes = sizeof peer;
  ASSERT_EQ(leat_getsockname(by_uri, reinterpret_cast<sockaddr*>(&peer), &bytes), 0);
  const int connecting = leat_socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(leat_connect(connecting, plain(peer), sizeof peer), -1);
  expect_advice();
  EXPECT_EQ(leat_close(connecting), 0);
  EXPECT_EQ(leat_close(by_uri), 0);
}

}  // namespace
}  // namespace leat::detail
