#include "base/uri.h"

#include <gtest/gtest.h>

#include <random>

#include "leat/error.h"

namespace leat::detail {
namespace {

TEST(UriTest, HostsAndPorts) {
  const struct {
    const char* text;
    const char* host;
    unsigned port;
  } cases[] = {
      {"example.org:5000", "example.org", 5000},
      {"10.0.0.1:1", "10.0.0.1", 1},
      {"my_host-2:65535", "my_host-2", 65535},
      {":5000", "", 5000},
      {"[::1]:80", "::1", 80},
      {"[fe80::1%eth0.7]:80", "fe80::1%eth0.7", 80},
      {"[::ffff:10.0.0.1]:80", "::ffff:10.0.0.1", 80},
      {"leat://example.org:5000", "example.org", 5000},
      {"leat://example.org:5000/", "example.org", 5000},
      {"leat://[::]:0?", "::", 0},
  };
  for (const auto& item : cases) {
    const Uri uri = parse_uri(item.text);
    EXPECT_EQ(uri.host, item.host) << item.text;
    EXPECT_EQ(uri.port, item.port) << item.text;
    EXPECT_TRUE(uri.parameters.empty()) << item.text;
  }
}

TEST(UriTest, Parameters) {
  const Uri uri =
      parse_uri("leat://h:1?device=^shm,ib:mlx5_0:1&spin_us=0&log=&tls_psk_file=/a%20b%26c");
  EXPECT_EQ(uri.parameters, (UriParameters{{"device", "^shm,ib:mlx5_0:1"},
                                           {"spin_us", "0"},
                                           {"log", ""},
                                           {"tls_psk_file", "/a b&c"}}));
  EXPECT_EQ(parse_uri("h:1?a=b=c").parameters.at("a"), "b=c");
  EXPECT_EQ(parse_uri("h:1?a=http://x").parameters.at("a"), "http://x");
}

TEST(UriTest, JunkIsRefusedWithTheReason) {
  const struct {
    std::string text;
    const char* reason;
  } cases[] = {
      {"", "port is missing"},
      {"host", "port is missing"},
      {"leat://", "port is missing"},
      {"host:", "'' is not a port"},
      {"host:http", "'http' is not a port"},
      {"host:65536", "'65536' is not a port"},
      {"host:-1", "'-1' is not a port"},
      {"host: 1", "' 1' is not a port"},
      {"host:1x", "'1x' is not a port"},
      {"::1:80", "brackets"},
      {"[::1:80", "] that ends"},
      {"[::1]", "port is missing"},
      {"[::1]80", "port is missing"},
      {"[]:80", "not an IPv6 address"},
      {"[host]:80", "not an IPv6 address"},
      {"[::1%eth 0]:80", "not an IPv6 address"},
      {"http://host:80", "scheme 'http'"},
      {"LEAT://host:80", "scheme 'LEAT'"},
      {"user@host:80", "not a host name"},
      {"host:80/path", "'80/path' is not a port"},
      {"ho st:80", "not a host name"},
      {"host:80#x", "not a port"},
      {"h:1?device", "setting=value"},
      {"h:1?=x", "setting=value"},
      {"h:1?a=1&a=2", "given twice"},
      {"h:1?a=1&&b=2", "setting=value"},
      {"h:1?a=%4", "hexadecimal"},
      {"h:1?a=%zz", "hexadecimal"},
      {"h:1?a=%00", "not 00"},
      {std::string("h\0:1", 4), "control"},
      {std::string("h:1?a=b\0c", 9), "control"},
      {std::string(300, 'h') + ":1", "255"},
  };
  for (const auto& item : cases) {
    try {
      parse_uri(item.text);
      ADD_FAILURE() << item.text << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << item.text;
      EXPECT_NE(std::string(error.what()).find(item.reason), std::string::npos)
          << item.text << ": " << error.what();
    }
  }
}

TEST(UriTest, RandomTextsAreTakenOrRefused) {
  constexpr char kAlphabet[] = "leat:/?&=%[].0aZ@ \n\xff";
  std::mt19937 random(5);
  for (int round = 0; round < 20'000; ++round) {
    std::string text(random() % 24, '\0');
    for (char& c : text) c = kAlphabet[random() % (sizeof kAlphabet - 1)];
    try {
      parse_uri(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace leat::detail
