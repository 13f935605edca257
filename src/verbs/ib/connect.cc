#include "verbs/ib/connect.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "base/random.h"
#include "verbs/ib/call.h"
#include "verbs/ib/probe.h"
#include "verbs/ib/row.h"

namespace leat::detail {
namespace {

constexpr int kBacklog = 16;  // strangers are turned away as fast as they come

using Proof = std::array<std::byte, CmEvent::kPrivateBytes>;

// What an offer's blob says: where the passive side listens, its MTU, and the secret by which each
// side shows the other that it knows the blob. Bytes: version 1, MTU as verbs number it, port
// (little endian), address, secret.
struct OfferBlob {
  static constexpr std::byte kVersion{1};
  static constexpr std::size_t kBytes = 4 + 16 + sizeof(Secret);

  IbAddress address;
  ibv_mtu mtu = IBV_MTU_1024;
  Secret secret{};
};
static_assert(OfferBlob::kBytes <= kMaxOfferBytes);

std::vector<std::byte> encode(const OfferBlob& offer) {
  const std::uint16_t port = offer.address.port();
  const std::array head{OfferBlob::kVersion, static_cast<std::byte>(offer.mtu),
                        static_cast<std::byte>(port & 0xff), static_cast<std::byte>(port >> 8)};
  const AddressBytes address = offer.address.bytes();
  std::vector<std::byte> blob(OfferBlob::kBytes);
  auto place = std::ranges::copy(head, blob.begin()).out;
  place = std::ranges::copy(address, place).out;
  std::ranges::copy(std::as_bytes(std::span(offer.secret)), place);
  return blob;
}

OfferBlob decode(std::span<const std::byte> blob) {
  if (blob.size() != OfferBlob::kBytes || blob[0] != OfferBlob::kVersion) {
    throw Error(ErrorCode::kProtocol,
                "the peer's ib offer is malformed (" + std::to_string(blob.size()) + " bytes)");
  }
  const auto mtu = std::to_integer<unsigned>(blob[1]);
  const unsigned port = std::to_integer<unsigned>(blob[2]) | std::to_integer<unsigned>(blob[3])
                                                                 << 8;
  if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096 || port == 0) {
    throw Error(ErrorCode::kProtocol, "the peer's ib offer has an impossible MTU or port");
  }
  AddressBytes address;
  std::ranges::copy(blob.subspan(4, address.size()), address.begin());
  OfferBlob offer;
  offer.address = IbAddress::of_bytes(address, static_cast<std::uint16_t>(port));
  offer.mtu = static_cast<ibv_mtu>(mtu);
  std::ranges::copy(blob.last(offer.secret.size()),
                    std::as_writable_bytes(std::span(offer.secret)).begin());
  return offer;
}

// What crosses the network beside the handshake. It is in clear, so it is not the secret itself:
// only a holder of the secret can make it, and it serves for this message from this queue pair
// only.
enum class CmMessage : std::uint8_t { kRequest = 1, kReply = 2 };
Proof proof(const Secret& secret, CmMessage message, std::uint32_t queue_pair,
            const AddressBytes& address) {
  std::array<unsigned char, 1 + 4 + std::tuple_size_v<AddressBytes>> text{
      static_cast<unsigned char>(message)};
  for (std::size_t i = 0; i < 4; ++i)
    text[1 + i] = static_cast<unsigned char>(queue_pair >> (8 * i));
  std::memcpy(text.data() + 5, address.data(), address.size());
  Proof result{};
  unsigned bytes = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), text.data(), text.size(),
           reinterpret_cast<unsigned char*>(result.data()), &bytes) == nullptr ||
      bytes != result.size())
    throw Error(ErrorCode::kResource, "OpenSSL computes no HMAC");
  return result;
}

// Compares in a time that does not depend on where they differ.
bool equal(const Proof& left, const Proof& right) {
  return CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

AddressBytes local_address(rdma_cm_id* id) { return IbAddress(rdma_get_local_addr(id)).bytes(); }
AddressBytes peer_address(rdma_cm_id* id) { return IbAddress(rdma_get_peer_addr(id)).bytes(); }

bool is_on(const rdma_cm_id& id, const IbDomain& domain) {
  return cm_device_name(id) == domain.verbs_name &&
         (!domain.only_this_port || id.port_num == domain.port);
}

rdma_conn_param parameters(const IbDomain& domain, const IbQueuePair& queue_pair) {
  rdma_conn_param parameters{};
  parameters.responder_resources = domain.reads;
  parameters.initiator_depth = domain.reads;
  parameters.retry_count = IbQueuePair::kRetries;
  parameters.rnr_retry_count = IbQueuePair::kRnrRetries;
  parameters.qp_num = queue_pair.number();
  return parameters;
}

// --- passive

class IbOffer final : public Offer {
 public:
  IbOffer(const IbDomain& domain, const QueueDepths& depths, const std::string& local_address)
      : domain_(domain),
        depths_(depths),
        channel_(std::in_place, domain.where),
        listener_(channel_->make_id(domain.where)) {
    IbAddress address = IbAddress::parse(local_address);
    if (address.is_loopback()) {
      // No device has this address, but a peer that reached it reaches the device's as well.
      const std::vector<IbAddress> own = ib_addresses(domain.verbs_name);
      if (!own.empty()) address = own.front();
    }
    require_route(rdma_bind_addr(listener_.get(), address.get()),
                  "rdma_bind_addr(" + address.text() + ")", domain.where);
    if (!is_on(*listener_, domain)) {
      throw Error(ErrorCode::kUnavailable,
                  address.text() + " is not an address of ib:" + domain.verbs_name +
                      (domain.only_this_port ? ":" + std::to_string(domain.port) : ""));
    }
    ib_count(rdma_listen(listener_.get(), kBacklog), "rdma_listen(" + address.text() + ")",
             domain.where);
    address.set_port(ntohs(rdma_get_src_port(listener_.get())));
    blob_ = {address, domain.mtu, random_secret()};
    queue_pair_ = std::make_unique<IbQueuePair>(domain_, depths_);
  }

  std::vector<std::byte> blob() const override { return encode(blob_); }

  std::unique_ptr<QueuePair> accept(Deadline deadline, int lifeline) override {
    if (!channel_) throw Error(ErrorCode::kClosed, "this offer was accepted before");
    const std::string what = "waiting for the peer on " + domain_.where;
    for (;;) {
      const CmEvent event = channel_->next(deadline, lifeline, what);
      if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        consider(event);
        if (peer_ == nullptr) throw_if_over(deadline, lifeline, what);  // however many come
      } else if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
        throw Error(ErrorCode::kUnavailable, what + ": the device was removed");
      } else if (event.id == peer_.get() && event.type == RDMA_CM_EVENT_ESTABLISHED) {
        return finish();
      } else if (event.id == peer_.get()) {
        // It knew the secret but gave up half way; it may come again. Its queue pair is spent.
        peer_.reset();
        queue_pair_ = std::make_unique<IbQueuePair>(domain_, depths_);
      }
    }
  }

 private:
  void consider(const CmEvent& request) {
    CmId id(request.id);
    const Proof wanted =
        proof(blob_.secret, CmMessage::kRequest, request.queue_pair, peer_address(id.get()));
    if (peer_ != nullptr || !equal(request.private_data, wanted)) {
      rdma_reject(id.get(), nullptr, 0);
      return;
    }
    queue_pair_->make_ready(id.get(), blob_.mtu);
    rdma_conn_param answer = parameters(domain_, *queue_pair_);
    answer.responder_resources = std::min(answer.responder_resources, request.initiator_depth);
    answer.initiator_depth = std::min(answer.initiator_depth, request.responder_resources);
    const Proof own =
        proof(blob_.secret, CmMessage::kReply, queue_pair_->number(), local_address(id.get()));
    answer.private_data = own.data();
    answer.private_data_len = own.size();
    ib_count(rdma_accept(id.get(), &answer), "rdma_accept", domain_.where);
    peer_ = std::move(id);
  }

  std::unique_ptr<QueuePair> finish() {
    listener_.reset();  // the kernel refuses later clients
    queue_pair_->connected(std::move(*channel_), std::move(peer_));
    channel_.reset();
    return std::move(queue_pair_);
  }

  const IbDomain& domain_;
  const QueueDepths depths_;
  OfferBlob blob_;
  std::optional<CmChannel> channel_;  // declared first: it outlives its ids. Empty when accepted
  CmId listener_;
  std::unique_ptr<IbQueuePair> queue_pair_;
  CmId peer_;  // accepted, not yet established
};

// --- active

// From the address that the routing table chooses, unless it chooses another device's or none; then
// from any of this one's.
CmId resolve_on(const IbDomain& domain, CmChannel& channel, const IbAddress& to,
                Deadline deadline) {
  std::vector<IbAddress> sources;
  if (!to.is_link_local()) sources.emplace_back();  // link-local ones are on no route
  for (const IbAddress& own : ib_addresses(domain.verbs_name)) {
    if (own.is_v6() == to.is_v6() && own.is_link_local() == to.is_link_local()) {
      sources.push_back(own);
    }
  }
  std::string tried;
  for (const IbAddress& from : sources) {
    IbAddress scoped = to;
    scoped.set_scope(from.scope());
    try {
      CmId id = resolve_address(channel, from, scoped, deadline, domain.where);
      if (is_on(*id, domain)) return id;
      tried += "; the route uses ib:" + cm_device_name(*id) + ":" + std::to_string(id->port_num);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kAddress) throw;
      tried += std::string("; ") + error.what();
    }
  }
  throw Error(ErrorCode::kAddress,
              "there is no route from ib:" + domain.verbs_name + " to " + to.text() + tried);
}

}  // namespace

std::unique_ptr<Offer> ib_offer(const IbDomain& domain, const QueueDepths& depths,
                                const std::string& local_address) {
  return std::make_unique<IbOffer>(domain, depths, local_address);
}

std::unique_ptr<QueuePair> ib_connect(const IbDomain& domain, std::span<const std::byte> blob,
                                      const QueueDepths& depths, Deadline deadline) {
  const OfferBlob offer = decode(blob);
  const std::string to = "(" + offer.address.text_with_port() + ") on " + domain.where;
  CmChannel channel(domain.where);
  CmId id = resolve_on(domain, channel, offer.address, deadline);
  ib_count(rdma_resolve_route(id.get(), cm_timeout_ms(deadline)), "rdma_resolve_route",
           domain.where);
  channel.expect(RDMA_CM_EVENT_ROUTE_RESOLVED, deadline, "rdma_resolve_route" + to);

  auto queue_pair = std::make_unique<IbQueuePair>(domain, depths);
  rdma_conn_param wish = parameters(domain, *queue_pair);
  const Proof own =
      proof(offer.secret, CmMessage::kRequest, queue_pair->number(), local_address(id.get()));
  wish.private_data = own.data();
  wish.private_data_len = own.size();
  ib_count(rdma_connect(id.get(), &wish), "rdma_connect", domain.where);
  const CmEvent reply =
      channel.expect(RDMA_CM_EVENT_CONNECT_RESPONSE, deadline, "rdma_connect" + to);
  const Proof wanted =
      proof(offer.secret, CmMessage::kReply, reply.queue_pair, peer_address(id.get()));
  if (!equal(reply.private_data, wanted))
    throw Error(ErrorCode::kAuthentication,
                "rdma_connect" + to + ": the responder does not know the offer's secret");
  queue_pair->make_ready(id.get(), offer.mtu);
  ib_count(rdma_establish(id.get()), "rdma_establish", domain.where);
  queue_pair->connected(std::move(channel), std::move(id));
  return queue_pair;
}

RoutedDevice find_ib_device(const Route& route) {
  constexpr std::chrono::seconds kPatience{2};
  const std::string where = "the devices of this machine";
  const auto parse = [](const std::string& address) {
    return address.empty() ? IbAddress() : IbAddress::parse(address);
  };
  RoutedDevice found;
  try {
    IbAddress local = parse(route.local_host);
    IbAddress peer = parse(route.peer_host);
    // Binding to it fails, but the kernel knows a device to connect to it.
    if (local.is_loopback()) peer = std::exchange(local, {});
    if (count_ib_devices() == 0) throw no_ib_device();
    CmChannel channel(where);
    CmId id;
    if (peer.is_empty()) {
      id = channel.make_id(where);
      require_route(rdma_bind_addr(id.get(), local.get()), "rdma_bind_addr(" + local.text() + ")",
                    where);
    } else {
      id = resolve_address(channel, local, peer, deadline_after(kPatience), where);
    }
    const std::string name = cm_device_name(*id);
    // The address of all interfaces binds without choosing a device.
    if (name.empty()) {
      found.why_not = "no RDMA device belongs to " + local.text();
    } else {
      found.name = "ib:" + name;
      found.name_with_port = found.name + ":" + std::to_string(id->port_num);
    }
  } catch (const Error& error) {
    found.why_not = error.what();
  }
  return found;
}

}  // namespace leat::detail
