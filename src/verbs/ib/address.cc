#include "verbs/ib/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>

#include <cstring>
#include <memory>

#include "leat/error.h"

namespace leat::detail {
namespace {

constexpr std::array<unsigned char, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

}  // namespace

IbAddress::IbAddress(const sockaddr* address) {
  if (address == nullptr) return;
  if (address->sa_family == AF_INET) {
    std::memcpy(&address_.v4, address, sizeof(sockaddr_in));
  } else if (address->sa_family == AF_INET6) {
    std::memcpy(&address_.v6, address, sizeof(sockaddr_in6));
    if (IN6_IS_ADDR_V4MAPPED(&address_.v6.sin6_addr)) *this = of_bytes(bytes(), port());
  }
}

IbAddress IbAddress::parse(const std::string& numeric) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(numeric.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "'" + numeric + "' is not a numeric IP address: " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  return IbAddress(found->ai_addr);
}

IbAddress IbAddress::of_bytes(const AddressBytes& bytes, std::uint16_t port) {
  IbAddress result;
  if (std::memcmp(bytes.data(), kMappedPrefix.data(), kMappedPrefix.size()) == 0) {
    result.address_.v4.sin_family = AF_INET;
    std::memcpy(&result.address_.v4.sin_addr, bytes.data() + kMappedPrefix.size(), 4);
  } else {
    result.address_.v6.sin6_family = AF_INET6;
    std::memcpy(&result.address_.v6.sin6_addr, bytes.data(), bytes.size());
  }
  result.set_port(port);
  return result;
}

bool IbAddress::is_link_local() const noexcept {
  return is_v6() && IN6_IS_ADDR_LINKLOCAL(&address_.v6.sin6_addr);
}

bool IbAddress::is_loopback() const noexcept {
  if (is_v6()) return IN6_IS_ADDR_LOOPBACK(&address_.v6.sin6_addr);
  return !is_empty() && ntohl(address_.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

void IbAddress::set_scope(std::uint32_t scope) noexcept {
  if (is_v6()) address_.v6.sin6_scope_id = scope;
}

std::uint16_t IbAddress::port() const noexcept {
  return ntohs(is_v6() ? address_.v6.sin6_port : address_.v4.sin_port);
}

void IbAddress::set_port(std::uint16_t port) noexcept {
  (is_v6() ? address_.v6.sin6_port : address_.v4.sin_port) = htons(port);
}

AddressBytes IbAddress::bytes() const noexcept {
  AddressBytes bytes{};
  if (is_v6()) {
    std::memcpy(bytes.data(), &address_.v6.sin6_addr, bytes.size());
  } else {
    std::memcpy(bytes.data(), kMappedPrefix.data(), kMappedPrefix.size());
    std::memcpy(bytes.data() + kMappedPrefix.size(), &address_.v4.sin_addr, 4);
  }
  return bytes;
}

std::string IbAddress::text() const {
  if (is_empty()) return "(no address)";
  std::array<char, INET6_ADDRSTRLEN> buffer{};
  if (!is_v6()) return inet_ntop(AF_INET, &address_.v4.sin_addr, buffer.data(), buffer.size());
  std::string text = inet_ntop(AF_INET6, &address_.v6.sin6_addr, buffer.data(), buffer.size());
  std::array<char, IF_NAMESIZE> interface {};
  if (scope() != 0 && if_indextoname(scope(), interface.data()) != nullptr) {
    text += std::string("%") + interface.data();
  }
  return text;
}

std::string IbAddress::text_with_port() const {
  const std::string port_text = ":" + std::to_string(port());
  return is_v6() ? "[" + text() + "]" + port_text : text() + port_text;
}

}  // namespace leat::detail
