#include "trusted/a2m/entry.h"

#include "base/wire.h"
#include "leat/error.h"

namespace leat::trusted {
namespace detail {
namespace {

Error no_digest() {
  return {ErrorCode::kSystem, "OpenSSL cannot compute SHA-256",
          "Check its configuration: openssl list -digest-algorithms"};
}

}  // namespace

Digester::Digester()
    : algorithm_(EVP_MD_fetch(nullptr, "SHA256", nullptr)), context_(EVP_MD_CTX_new()) {
  if (!algorithm_ || !context_) throw no_digest();
}

void Digester::digest(std::uint64_t index, EntryKind kind, std::uint64_t head,
                      const Digest& previous, std::span<const std::byte> context, Digest& digest) {
  std::array<std::byte, 24 + kDigestBytes> first;
  leat::detail::WireWriter writer(first);
  writer.number(index);
  writer.number(static_cast<std::uint64_t>(kind));
  writer.number(head);
  writer.bytes(previous, kDigestBytes);
  if (EVP_DigestInit_ex2(context_.get(), algorithm_.get(), nullptr) != 1 ||
      EVP_DigestUpdate(context_.get(), first.data(), first.size()) != 1 ||
      EVP_DigestUpdate(context_.get(), context.data(), context.size()) != 1 ||
      EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()),
                         nullptr) != 1)
    throw no_digest();
}

void sha256(std::span<const std::byte> bytes, Digest& digest) {
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()),
                 nullptr, EVP_sha256(), nullptr) != 1)
    throw no_digest();
}

}  // namespace detail

std::optional<Entry> read_entry(std::span<const std::byte> record) noexcept {
  const auto header = read_header(record);
  if (!header || header->kind != Kind::kLog || header->stream != 0) return std::nullopt;
  const std::uint32_t kind = header->slot & ~detail::kDigestFlag;
  if (kind < static_cast<std::uint32_t>(EntryKind::kContext) ||
      kind > static_cast<std::uint32_t>(EntryKind::kEnd))
    return std::nullopt;
  Entry entry{.log = header->session,
              .index = header->counter,
              .kind = static_cast<EntryKind>(kind),
              .head = header->offset,
              .context = payload_of(record)};
  if ((header->slot & detail::kDigestFlag) != 0) {
    if (entry.context.size() < detail::kDigestBytes) return std::nullopt;
    entry.digest = entry.context.first(detail::kDigestBytes);
    entry.context = entry.context.subspan(detail::kDigestBytes);
  }
  const bool holds_nonce = entry.kind == EntryKind::kTruncation || entry.kind == EntryKind::kEnd;
  if (holds_nonce && entry.context.size() != Nonce{}.size()) return std::nullopt;
  if (entry.kind != EntryKind::kTruncation && entry.head != 0) return std::nullopt;
  return entry;
}

std::string_view to_string(LookupStatus status) noexcept {
  switch (status) {
    case LookupStatus::kAssigned:
      return "assigned";
    case LookupStatus::kForgotten:
      return "forgotten";
    case LookupStatus::kUnassigned:
      return "unassigned";
    case LookupStatus::kLost:
      return "lost";
  }
  return "unknown";
}

}  // namespace leat::trusted
