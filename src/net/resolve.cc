#include "net/resolve.h"

#include <netdb.h>
#include <pthread.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/quote.h"
#include "base/signals_held.h"
#include "base/system_error.h"
#include "leat/error.h"

namespace leat::detail {
namespace {

struct LookUp {
  int failure = 0;  // of getaddrinfo
  int system_errno = 0;
  std::vector<ResolvedAddress> addresses;
};

LookUp look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  LookUp result;
  result.failure = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                               &hints, &list);
  result.system_errno = errno;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, [](addrinfo* first) {
    if (first != nullptr) freeaddrinfo(first);
  });
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    ResolvedAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.bytes = entry->ai_addrlen;
    result.addresses.push_back(address);
  }
  if (result.failure == 0 && result.addresses.empty()) result.failure = EAI_NONAME;
  return result;
}

std::vector<ResolvedAddress> addresses_or_throw(LookUp result, const std::string& host) {
  if (result.failure == 0) return std::move(result.addresses);
  const std::string why =
      result.failure == EAI_SYSTEM
          ? std::error_code(result.system_errno, std::generic_category()).message()
          : gai_strerror(result.failure);
  throw Error(ErrorCode::kAddress, "host " + quoted(host) + " cannot be resolved: " + why,
              "Check the spelling, /etc/hosts and the name server, or use a numeric address.");
}

// Shared with the thread, which may outlive the caller.
struct Pending {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  LookUp result;
};

// In a thread of its own that takes none of the program's signals.
void start_look_up(std::function<void()> work) {
  const SignalsHeld not_for_the_thread;
  try {
    std::thread(std::move(work)).detach();
  } catch (const std::system_error& error) {
    throw system_error("creating a thread for the name look-up", error.code().value());
  }
}

}  // namespace

std::vector<ResolvedAddress> resolve(const std::string& host, std::uint16_t port,
                                     Deadline deadline) {
  LookUp numeric = look_up(host, port, AI_NUMERICHOST);
  if (numeric.failure == 0) return std::move(numeric.addresses);

  const auto pending = std::make_shared<Pending>();
  start_look_up([pending, host, port] {
    LookUp result = look_up(host, port, 0);
    const std::lock_guard lock(pending->mutex);
    pending->result = std::move(result);
    pending->done = true;
    pending->changed.notify_one();
  });

  std::unique_lock lock(pending->mutex);
  const auto done = [&] { return pending->done; };
  if (deadline == kNoDeadline) {
    pending->changed.wait(lock, done);
  } else if (!pending->changed.wait_until(lock, deadline, done)) {
    throw Error(ErrorCode::kTimeout, "host " + quoted(host) + " was not resolved in time",
                "Check the name server, use a numeric address, or raise connect_timeout_ms.");
  }
  return addresses_or_throw(std::move(pending->result), host);
}

std::vector<ResolvedAddress> resolve_to_listen(const std::string& host, std::uint16_t port) {
  LookUp result = look_up(host, port, AI_PASSIVE);
  // All addresses: [::] first, because it takes IPv4 as well; 0.0.0.0 where there is no IPv6.
  if (host.empty() && result.addresses.size() == 2 && result.addresses[1].family() == AF_INET6) {
    std::swap(result.addresses[0], result.addresses[1]);
  }
  return addresses_or_throw(std::move(result), host);
}

}  // namespace leat::detail
