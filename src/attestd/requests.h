// Answers the requests of one client of leat-attestd. No I/O.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attest/channel_kernel.h"
#include "attest/kernel_ring.h"
#include "attestd/holdings.h"
#include "leat/attest/attestation.h"

namespace leat::attestd {

// Owner: the client's place in the server, in one thread. It owns the attestors of the client's
// connections.
class Requests {
 public:
  // Both must outlive it. `max_kernels`: limit of the attestors for connections.
  Requests(const Holdings& holdings, const AccessRules& rules, uid_t user, std::size_t max_kernels)
      : holdings_(holdings), rules_(rules), user_(user), kernels_(max_kernels) {}

  // Answers a request, which may be any bytes. `data` must be memory that no client can write; the
  // replies to kSeveral go to `replies`, which may be the client's, because it is only written.
  trusted::detail::Reply answer(const trusted::detail::Request& request,
                                std::span<const std::byte> data,
                                std::span<std::byte> replies) noexcept;

 private:
  // The attestor of a connection, between kOpen and kClose.
  struct ChannelKernel {
    std::uint32_t session = 0;
    trusted::Algorithm algorithm{};
    trusted::detail::Nonce nonce{};
    std::unique_ptr<trusted::LocalKernel> kernel;  // null before kBegin
    bool open = false;
  };

  trusted::Verdict obey(const trusted::detail::Request& request, std::span<const std::byte> data,
                        std::span<std::byte> out);
  // Answers all or none: kFormat, before the first answer, if one of them is not such a request, if
  // there are too many, or if their replies do not fit.
  trusted::Verdict answer_several(std::span<const std::byte> list,
                                  std::span<std::byte> replies) noexcept;
  trusted::Verdict open(const trusted::detail::Request& request, std::span<std::byte> out);
  trusted::Verdict begin(ChannelKernel& channel, std::span<const std::byte> theirs, bool active);
  // Null if there is no such attestor, or this user may not use that session.
  trusted::LocalKernel* kernel_of(std::uint32_t kernel, std::uint32_t session);
  ChannelKernel* channel_of(std::uint32_t kernel);

  const Holdings& holdings_;
  const AccessRules& rules_;
  const uid_t user_;
  std::vector<ChannelKernel> kernels_;  // number n is at n - 1
};

}  // namespace leat::attestd
