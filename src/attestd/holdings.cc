#include "attestd/holdings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "attest/kernel_ring.h"
#include "attest/mac.h"
#include "base/key_file.h"
#include "base/quote.h"
#include "base/setting_values.h"
#include "base/users.h"
#include "base/wire.h"
#include "leat/error.h"

namespace leat::attestd {

using trusted::Session;
using trusted::Verdict;

namespace {

constexpr std::uint32_t kKeyFile = 0;  // as a session

void require(Verdict verdict, const std::string& what) {
  if (verdict != Verdict::kOk)
    throw Error(ErrorCode::kInvalidArgument, what + ": " + std::string(to_string(verdict)));
}

}  // namespace

void Holdings::take_key_file(const std::string& path) {
  auto key = leat::detail::read_key_file(
      {"--key-file", path, trusted::kMinKeyBytes, trusted::kMaxKeyBytes});
  keep(kKeyFile, std::as_bytes(std::span(key)), std::nullopt);
  explicit_bzero(key.data(), key.size());
}

void Holdings::begin(std::uint32_t device, std::uint64_t epoch) {
  device_ = std::make_unique<trusted::LocalKernel>(device, epoch);
}

void Holdings::provision(const Session& session) {
  require(device_->provision(session), "session " + std::to_string(session.id));
  if (session.role != trusted::Role::kPair || session.id == kKeyFile) return;
  // Apart from what the session itself is derived of, and of its epoch.
  std::array<std::byte, 32> purpose;
  leat::detail::WireWriter writer(purpose);
  writer.text("leat connections", 16);
  writer.number(device_->epoch());
  writer.number(std::uint64_t{session.id});
  const leat::detail::SecretMemory key(trusted::kMinKeyBytes);
  trusted::detail::derive_key(session.key, purpose, key.span());
  keep(session.id, key.span(), session.algorithm);
}

void Holdings::enable() { require(device_->enable(), "enable"); }

std::optional<Holdings::Introduction> Holdings::introduce(std::span<const std::byte> nonce) const {
  const auto message =
      trusted::detail::to_be_proven(nonce, static_cast<std::uint32_t>(getpid()), pid_namespace_);
  const auto by = [&](const trusted::SigningKey& key) {
    return Introduction{key.public_key(), key.sign(message)};
  };
  if (reply_key_) return by(*reply_key_);
  const auto file = channel_keys_.find(kKeyFile);
  if (file == channel_keys_.end()) return std::nullopt;
  // Made for each proof, so that it is in memory for no longer.
  const leat::detail::SecretMemory seed(trusted::kMinKeyBytes);
  trusted::detail::derive_key(file->second.memory.span(),
                              std::as_bytes(std::span("leat daemon", 11)), seed.span());
  return by(trusted::SigningKey(seed.span()));
}

void Holdings::keep(std::uint32_t session, std::span<const std::byte> key,
                    std::optional<trusted::Algorithm> algorithm) {
  auto memory = leat::detail::SecretMemory::lasting(key.size());
  std::ranges::copy(key, memory.span().begin());
  channel_keys_.emplace(session, ChannelKey{key.size(), std::move(memory), algorithm});
}

std::span<const std::byte> Holdings::channel_key(std::uint32_t session,
                                                 trusted::Algorithm algorithm) const {
  const auto found = channel_keys_.find(session);
  if (found == channel_keys_.end()) return {};
  const ChannelKey& key = found->second;
  if (key.algorithm && key.algorithm != algorithm) return {};
  return key.memory.span().first(key.bytes);
}

void AccessRules::add(const std::string& rule) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kInvalidArgument, "--allow " + leat::detail::quoted(rule) + ": " + why,
                "USER for every session, or USER:1,2 for those; 0 is the key file.");
  };
  const std::size_t colon = rule.find(':');
  const std::string user = rule.substr(0, colon);
  const auto uid = leat::detail::user_of(user);
  if (!uid) refuse("no such user");
  auto& sessions = rules_[*uid];
  sessions.reset();
  if (colon == std::string::npos) return;
  sessions.emplace();
  for (std::size_t start = colon + 1; start <= rule.size();) {
    const std::size_t end = std::min(rule.find(',', start), rule.size());
    const auto number =
        leat::detail::parse_number(std::string_view(rule).substr(start, end - start));
    if (!number || *number > 0xffff'ffff) refuse("sessions are numbers with commas between");
    sessions->insert(static_cast<std::uint32_t>(*number));
    start = end + 1;
  }
}

bool AccessRules::allows(uid_t user, std::uint32_t session) const {
  if (rules_.empty()) return true;
  const auto found = rules_.find(user);
  if (found == rules_.end()) return false;
  return !found->second || found->second->contains(session);
}

}  // namespace leat::attestd
