#include "attestd/requests.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "attest/record.h"
#include "base/wire.h"
#include "leat/error.h"

namespace leat::attestd {

using trusted::Kind;
using trusted::LocalKernel;
using trusted::Verdict;
using trusted::detail::Operation;
using trusted::detail::Reply;
using trusted::detail::Request;

namespace {

// Whether all fields that the operation does not use are zero.
bool is_plain(const Request& request) {
  Request used;
  used.operation = request.operation;
  used.bytes = request.bytes;
  used.kernel = request.kernel;
  switch (static_cast<Operation>(request.operation)) {
    case Operation::kAttest:
      used.kind = request.kind;
      used.stream = request.stream;
      used.session = request.session;
      used.slot = request.slot;
      used.offset = request.offset;
      break;
    case Operation::kVerify:
    case Operation::kVerifyStateless:
      used.kind = request.kind;
      break;
    case Operation::kSign:
      used.kind = request.kind;
      used.kernel = trusted::detail::kDeviceKernel;
      break;
    case Operation::kCounters:
      used.stream = request.stream;
      used.session = request.session;
      break;
    case Operation::kSession:
      used.session = request.session;
      break;
    case Operation::kOpen:
      used.kernel = 0;
      used.algorithm = request.algorithm;
      used.session = request.session;
      break;
    case Operation::kBegin:
      used.active = request.active & 1;
      break;
    case Operation::kClose:
      break;
    case Operation::kSeveral:
    case Operation::kProve:
      used.kernel = 0;
      break;
    default:
      return false;
  }
  return used.kind == request.kind && used.stream == request.stream &&
         used.algorithm == request.algorithm && used.kernel == request.kernel &&
         used.session == request.session && used.slot == request.slot &&
         used.active == request.active && used.offset == request.offset;
}

// None that changes which kernels there are, and none that costs a signature.
bool may_be_packed(const Request& request) {
  return request.operation >= static_cast<std::uint8_t>(Operation::kAttest) &&
         request.operation <= static_cast<std::uint8_t>(Operation::kVerifyStateless);
}

}  // namespace

Reply Requests::answer(const Request& request, std::span<const std::byte> data,
                       std::span<std::byte> replies) noexcept {
  Reply reply;
  Verdict verdict = Verdict::kUnavailable;
  try {
    if (!is_plain(request))
      verdict = Verdict::kFormat;
    else if (static_cast<Operation>(request.operation) == Operation::kSeveral)
      verdict = answer_several(data, replies);
    else
      verdict = obey(request, data, reply.data);
  } catch (const std::exception&) {
    // Memory or OpenSSL failed; as LocalKernel says it.
  }
  reply.verdict = static_cast<std::uint32_t>(verdict);
  if (verdict != Verdict::kOk) reply.data = {};
  return reply;
}

Verdict Requests::answer_several(std::span<const std::byte> list,
                                 std::span<std::byte> replies) noexcept {
  std::size_t count = 0;
  for (auto rest = list; !rest.empty(); ++count) {
    const auto packed = trusted::detail::take_packed(rest);
    if (!packed || !may_be_packed(packed->request)) return Verdict::kFormat;
  }
  if (count > trusted::detail::kMostAtOnce || count * sizeof(Reply) > replies.size())
    return Verdict::kFormat;
  while (const auto packed = trusted::detail::take_packed(list)) {
    const Reply reply = answer(packed->request, packed->data, {});
    std::memcpy(replies.data(), &reply, sizeof reply);
    replies = replies.subspan(sizeof reply);
  }
  return Verdict::kOk;
}

Verdict Requests::obey(const Request& request, std::span<const std::byte> data,
                       std::span<std::byte> out) {
  const auto kind = static_cast<Kind>(request.kind);
  leat::detail::WireWriter writer(out);
  switch (static_cast<Operation>(request.operation)) {
    case Operation::kAttest: {
      LocalKernel* kernel = kernel_of(request.kernel, request.session);
      if (kernel == nullptr) return Verdict::kSession;
      trusted::Proof proof;
      const Verdict verdict = kernel->attest({.session = request.session,
                                              .kind = kind,
                                              .stream = request.stream,
                                              .slot = request.slot,
                                              .offset = request.offset},
                                             data, proof);
      if (verdict == Verdict::kOk)
        std::ranges::copy(proof.mac, std::ranges::copy(proof.header, out.begin()).out);
      return verdict;
    }
    case Operation::kVerify:
    case Operation::kVerifyStateless:
    case Operation::kSign: {
      trusted::RecordHeader header;
      const Verdict format = trusted::detail::read_header(data, header);
      if (format != Verdict::kOk) return format;
      LocalKernel* kernel = kernel_of(request.kernel, header.session);
      if (kernel == nullptr) return Verdict::kSession;
      if (static_cast<Operation>(request.operation) == Operation::kVerify)
        return kernel->verify(data, kind);
      const Verdict verdict = kernel->verify_stateless(data, kind);
      if (verdict != Verdict::kOk ||
          static_cast<Operation>(request.operation) == Operation::kVerifyStateless)
        return verdict;
      const trusted::SigningKey* key = holdings_.reply_key();
      if (key == nullptr) return Verdict::kRole;
      std::ranges::copy(key->sign(trusted::detail::to_be_signed(data)), out.begin());
      return Verdict::kOk;
    }
    case Operation::kCounters: {
      LocalKernel* kernel = kernel_of(request.kernel, request.session);
      const auto counters =
          kernel == nullptr ? std::nullopt : kernel->counters(request.session, request.stream);
      if (!counters) return Verdict::kSession;
      writer.number(counters->next_sent);
      writer.number(counters->next_received);
      return Verdict::kOk;
    }
    case Operation::kSession: {
      LocalKernel* kernel = kernel_of(request.kernel, request.session);
      const auto session = kernel == nullptr ? std::nullopt : kernel->session(request.session);
      if (!session) return Verdict::kSession;
      writer.number(static_cast<std::uint8_t>(session->role));
      writer.number(static_cast<std::uint8_t>(session->algorithm));
      writer.number(session->streams);
      writer.number(std::uint8_t{0});
      writer.number(session->peer);
      return Verdict::kOk;
    }
    case Operation::kOpen:
      return open(request, out);
    case Operation::kBegin: {
      ChannelKernel* channel = channel_of(request.kernel);
      return channel == nullptr ? Verdict::kSession : begin(*channel, data, request.active != 0);
    }
    case Operation::kClose: {
      ChannelKernel* channel = channel_of(request.kernel);
      if (channel == nullptr) return Verdict::kSession;
      *channel = {};
      return Verdict::kOk;
    }
    case Operation::kProve: {
      if (data.size() != trusted::detail::kNonceBytes) return Verdict::kLength;
      const auto introduction = holdings_.introduce(data);
      if (!introduction) return Verdict::kRole;
      writer.bytes(introduction->key, introduction->key.size());
      writer.bytes(introduction->signature, introduction->signature.size());
      return Verdict::kOk;
    }
    case Operation::kSeveral:
      break;  // not within another
  }
  return Verdict::kFormat;
}

Verdict Requests::open(const Request& request, std::span<std::byte> out) {
  const auto algorithm = static_cast<trusted::Algorithm>(request.algorithm);
  if (!trusted::detail::is_algorithm(algorithm)) return Verdict::kAlgorithm;
  if (!rules_.allows(user_, request.session) ||
      holdings_.channel_key(request.session, algorithm).empty())
    return Verdict::kSession;
  const auto free = std::ranges::find(kernels_, false, &ChannelKernel::open);
  if (free == kernels_.end()) return Verdict::kUnavailable;
  *free = {.session = request.session,
           .algorithm = algorithm,
           .nonce = trusted::detail::fresh_nonce(),
           .kernel = nullptr,
           .open = true};
  leat::detail::WireWriter writer(out);
  writer.number(static_cast<std::uint32_t>(free - kernels_.begin() + 1));
  writer.bytes(free->nonce, free->nonce.size());
  return Verdict::kOk;
}

Verdict Requests::begin(ChannelKernel& channel, std::span<const std::byte> theirs, bool active) {
  if (channel.kernel) return Verdict::kSealed;  // a nonce serves once
  if (theirs.size() != trusted::detail::kNonceBytes) return Verdict::kLength;
  if (std::ranges::equal(theirs, channel.nonce)) return Verdict::kDuplicate;
  channel.kernel = trusted::detail::make_channel_kernel(
      holdings_.channel_key(channel.session, channel.algorithm), channel.algorithm, channel.nonce,
      theirs.first<trusted::detail::kNonceBytes>(), active);
  return Verdict::kOk;
}

LocalKernel* Requests::kernel_of(std::uint32_t kernel, std::uint32_t session) {
  if (kernel == trusted::detail::kDeviceKernel)
    return rules_.allows(user_, session) ? holdings_.device() : nullptr;
  ChannelKernel* channel = channel_of(kernel);
  return channel == nullptr ? nullptr : channel->kernel.get();
}

Requests::ChannelKernel* Requests::channel_of(std::uint32_t kernel) {
  if (kernel == trusted::detail::kDeviceKernel || kernel > kernels_.size()) return nullptr;
  ChannelKernel& channel = kernels_[kernel - 1];
  return channel.open ? &channel : nullptr;
}

}  // namespace leat::attestd
