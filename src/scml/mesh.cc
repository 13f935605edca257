#include <utility>

#include "leat/scml/party.h"
#include "scml/mesh_core.h"

namespace leat::scml {
namespace {

constexpr std::pair<Carrier, std::string_view> kNames[] = {{Carrier::kTcp, "tcp"},
                                                           {Carrier::kUnified, "unified"},
                                                           {Carrier::kContexts, "contexts"},
                                                           {Carrier::kPlanned, "planned"}};

}  // namespace

std::string_view to_string(Carrier carrier) noexcept {
  for (const auto& [value, name] : kNames)
    if (value == carrier) return name;
  return "none";
}

Carrier carrier_named(std::string_view name) {
  for (const auto& [value, its_name] : kNames)
    if (its_name == name) return value;
  throw Error(ErrorCode::kInvalidArgument, "there is no carrier '" + std::string(name) + "'",
              "Carriers are tcp, unified, contexts and planned.");
}

Mesh::Mesh(const MeshOptions& options) : core_(std::make_unique<detail::MeshCore>(options)) {}
Mesh::Mesh(Mesh&&) noexcept = default;
Mesh& Mesh::operator=(Mesh&&) noexcept = default;
Mesh::~Mesh() = default;

unsigned Mesh::self() const { return core_->self(); }
unsigned Mesh::parties() const { return core_->parties(); }
unsigned Mesh::thread() const { return core_->thread(); }
Carrier Mesh::carrier() const { return core_->carrier(); }

void Mesh::open(const Placement& placement) {
  const MessageArray& messages = placement.messages;
  if (messages.message_bytes > UINT32_MAX)
    throw Error(ErrorCode::kInvalidArgument,
                "open: messages of " + std::to_string(messages.message_bytes) + " bytes",
                "Plan more and smaller messages.");
  const leat::MessageArray array{
      .base_bytes = placement.base_bytes,
      .message_bytes = static_cast<std::uint32_t>(messages.message_bytes),
      .count = messages.message_count()};
  core_->open(placement.context, array, messages.flows);
}
void Mesh::open(unsigned context, const leat::MessageArray& array, std::span<const Flow> flows) {
  core_->open(context, array, flows);
}
void Mesh::close(unsigned context) { core_->close(context); }
bool Mesh::is_open(unsigned context) const { return core_->is_open(context); }
void Mesh::select(unsigned context) { core_->select(context); }

void Mesh::send(unsigned peer, std::uint64_t index, std::span<const std::byte> bytes) {
  core_->send(peer, index, bytes);
}
void Mesh::send(unsigned peer, std::span<const std::byte> bytes) { core_->send_next(peer, bytes); }
std::span<std::byte> Mesh::reserve(unsigned peer, std::uint64_t index, std::uint64_t count) {
  return core_->reserve(peer, index, count);
}
void Mesh::commit(unsigned peer) { core_->commit(peer); }

std::span<const std::byte> Mesh::receive(unsigned peer, std::uint64_t index, std::uint64_t count) {
  return core_->receive(peer, index, count);
}
std::span<const std::byte> Mesh::receive(unsigned peer, std::uint64_t count) {
  return core_->receive_next(peer, count);
}

void Mesh::flush() { core_->flush(); }
void Mesh::barrier() { core_->barrier(); }
Channel& Mesh::channel(unsigned peer) { return core_->channel(peer); }
Stats Mesh::stats() const { return core_->stats(); }

}  // namespace leat::scml
