// What leat-attestd does with each request of one client. No I/O.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attestd/holdings.h"
#include "leat/trusted/attestation.h"
#include "trusted/channel_kernel.h"
#include "trusted/kernel_ring.h"

namespace leat::attestd {

// Owner: the client's place in the server; one thread. The kernels of its connections go with it.
class Requests {
 public:
  // Both must outlive it. `max_kernels`: of connections at a time.
  Requests(const Holdings& holdings, const AccessRules& rules, uid_t user, std::size_t max_kernels)
      : holdings_(holdings), rules_(rules), user_(user), kernels_(max_kernels) {}

  // The answer to a request, which may be anything. `data` must be memory that no client can write;
  // `replies` is where those to kSeveral go, and may be the client's: it is only written.
  trusted::detail::Reply answer(const trusted::detail::Request& request,
                                std::span<const std::byte> data,
                                std::span<std::byte> replies) noexcept;

 private:
  // A connection's, between kOpen and kClose.
  struct ChannelKernel {
    std::uint32_t session = 0;
    trusted::Algorithm algorithm{};
    trusted::detail::Nonce nonce{};
    std::unique_ptr<trusted::LocalKernel> kernel;  // null before kBegin
    bool open = false;
  };

  trusted::Verdict obey(const trusted::detail::Request& request, std::span<const std::byte> data,
                        std::span<std::byte> out);
  // All or none: kFormat, before the first is answered, if one of them is no such request, there
  // are more than may be, or their replies have no room.
  trusted::Verdict answer_several(std::span<const std::byte> list,
                                  std::span<std::byte> replies) noexcept;
  trusted::Verdict open(const trusted::detail::Request& request, std::span<std::byte> out);
  trusted::Verdict begin(ChannelKernel& channel, std::span<const std::byte> theirs, bool active);
  // Null: no such kernel, or that session is not for this user.
  trusted::LocalKernel* kernel_of(std::uint32_t kernel, std::uint32_t session);
  ChannelKernel* channel_of(std::uint32_t kernel);

  const Holdings& holdings_;
  const AccessRules& rules_;
  const uid_t user_;
  std::vector<ChannelKernel> kernels_;  // number n is at n - 1
};

}  // namespace leat::attestd
