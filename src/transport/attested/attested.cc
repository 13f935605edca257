#include "transport/attested/attested.h"

#include <algorithm>
#include <utility>

#include "leat/error.h"

namespace leat::detail {
namespace {

using trusted::Kind;
using trusted::kRecordOverheadBytes;

std::unique_ptr<trusted::detail::ChannelHome> home_of(const Settings& settings) {
  if (settings.attest_kernel == kInProcess)
    return trusted::detail::make_local_home(settings.attest_key_file, settings.attest_algorithm);
  if (!settings.attest_key_file.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "attest_key_file is set, and attest_kernel names a leat-attestd",
                "Set one of them: a key that this process can read is not isolated.");
  return trusted::detail::make_isolated_home(
      {settings.attest_kernel, settings.attest_kernel_user, settings.attest_kernel_key},
      static_cast<std::uint32_t>(settings.attest_session), settings.attest_algorithm,
      settings.spin);
}

}  // namespace

std::unique_ptr<Transport> AttestedTransport::make(const MakeInner& inner, Endpoint end,
                                                   const Settings& settings) {
  trusted::detail::ChannelSession session(home_of(settings), settings.attest_algorithm, end.active);
  const Settings of_records =
      settings_of_records(settings, trusted::kMaxPayloadBytes, kRecordOverheadBytes);
  return std::make_unique<AttestedTransport>(inner(std::move(end), of_records), std::move(session));
}

AttestedTransport::AttestedTransport(std::unique_ptr<Transport> inner,
                                     trusted::detail::ChannelSession session)
    : inner_(std::move(inner)),
      session_(std::move(session)),
      records_(*inner_, kRecordOverheadBytes) {
  kinds_.fill(Kind::kSend);
}

MemoryRegion& AttestedTransport::keep(std::unique_ptr<MemoryRegion> region) {
  return *kept_.emplace_back(std::move(region));
}

std::vector<std::byte> AttestedTransport::setup() const {
  std::vector<std::byte> bytes(session_.offer().begin(), session_.offer().end());
  const std::vector<std::byte> inner = inner_->setup();
  bytes.insert(bytes.end(), inner.begin(), inner.end());
  return bytes;
}

void AttestedTransport::start(std::span<const std::byte> peer_setup) {
  const std::size_t offered = std::min(peer_setup.size(), session_.offer().size());
  session_.begin(peer_setup.first(offered));
  inner_->start(peer_setup.subspan(offered));
  facts_ = facts_of_records(inner_->facts(), kRecordOverheadBytes);
  facts_.max_message_bytes = std::min(facts_.max_message_bytes, session_.max_payload_bytes());
  facts_.records = this;
  trusted::IsolatedKernel* const isolated = session_.isolated();
  if (isolated == nullptr) return;
  asking_ = std::make_unique<Asking>(*isolated, facts_.send_event_fd);
  checking_ = std::make_unique<Checking>(*isolated, facts_.receive_event_fd);
  facts_.send_event_fd = asking_->open.event_fd();
  facts_.receive_event_fd = checking_->open.event_fd();
  facts_.events_stay = false;
  facts_.checking = &checking_->pending;
}

void AttestedTransport::arm(Side side) {
  inner_->arm(side);
  if (!asking_) return;
  if (side == Side::kSend)
    asking_->open.arm(checking_->open);
  else
    checking_->open.arm(asking_->open);
}

Outlook AttestedTransport::outlook(Side side, Look look) const {
  Outlook outlook = inner_->outlook(side, look);
  if (!asking_) return outlook;
  const auto& open = side == Side::kSend ? asking_->open : checking_->open;
  if (side == Side::kSend) {
    outlook.soon = outlook.soon || open.answered();
    // Not for room, but for the answer, which gives an event.
    if (asking_->count != 0) outlook.comes = Outlook::Comes::kWithEvent;
  } else if (look == Look::kThorough) {
    // While a record is checked none is taken off the inner transport; the answer gives an event.
    if (checking_->record && !open.answered()) outlook.soon = false;
    for (const auto& verified : checking_->verified) outlook.soon = outlook.soon || verified;
    for (const Missing missing : missing_)
      outlook.soon = outlook.soon || missing == Missing::kUntold;
  }
  if (!open.announces()) outlook.comes = Outlook::Comes::kSilently;
  return outlook;
}

std::string AttestedTransport::describe() const {
  return "attested+" + inner_->describe() + ", " + session_.describe();
}

void AttestedTransport::add_stats(Stats& stats) const {
  inner_->add_stats(stats);
  stats.refused_records += refused_.get();
}

}  // namespace leat::detail
