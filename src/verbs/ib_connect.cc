#include "verbs/ib_connect.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/system_error.h"
#include "verbs/device_table.h"
#include "verbs/ib_call.h"
#include "verbs/ib_device.h"
#include "verbs/ib_probe.h"

namespace leat::detail {
namespace {

constexpr int kBacklog = 16;  // strangers are turned away as fast as they come

using Secret = std::array<std::byte, CmEvent::kSecretBytes>;

// What an offer's blob says: where the passive side listens, its MTU, and the secret that shows it
// that the active side has read the blob. Bytes: version 1, MTU as verbs number it, port (little
// endian), address, secret.
struct OfferBlob {
  static constexpr std::byte kVersion{1};
  static constexpr std::size_t kBytes = 4 + 16 + CmEvent::kSecretBytes;

  IbAddress address;
  ibv_mtu mtu = IBV_MTU_1024;
  Secret secret{};
};
static_assert(OfferBlob::kBytes <= kMaxOfferBytes);

std::vector<std::byte> encode(const OfferBlob& offer) {
  const std::uint16_t port = offer.address.port();
  std::vector<std::byte> blob{OfferBlob::kVersion, static_cast<std::byte>(offer.mtu),
                              static_cast<std::byte>(port & 0xff),
                              static_cast<std::byte>(port >> 8)};
  const AddressBytes address = offer.address.bytes();
  blob.insert(blob.end(), address.begin(), address.end());
  blob.insert(blob.end(), offer.secret.begin(), offer.secret.end());
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
  std::ranges::copy(blob.last(offer.secret.size()), offer.secret.begin());
  return offer;
}

Secret make_secret() {
  Secret secret;
  if (getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    throw system_error("getrandom", errno);
  }
  return secret;
}

// In a time that does not depend on where they differ.
bool equal(const Secret& left, const Secret& right) {
  std::byte difference{0};
  for (std::size_t i = 0; i < left.size(); ++i) difference |= left[i] ^ right[i];
  return difference == std::byte{0};
}

bool is_on(const rdma_cm_id& id, const IbDomain& domain) {
  return cm_device_name(id) == domain.verbs_name;
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
                  address.text() + " is not an address of ib:" + domain.verbs_name);
    }
    ib_count(rdma_listen(listener_.get(), kBacklog), "rdma_listen(" + address.text() + ")",
             domain.where);
    address.set_port(ntohs(rdma_get_src_port(listener_.get())));
    blob_ = {address, domain.mtu, make_secret()};
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
    if (peer_ != nullptr || !equal(request.private_data, blob_.secret)) {
      rdma_reject(id.get(), nullptr, 0);
      return;
    }
    queue_pair_->make_ready(id.get(), blob_.mtu);
    rdma_conn_param answer = parameters(domain_, *queue_pair_);
    answer.responder_resources = std::min(answer.responder_resources, request.initiator_depth);
    answer.initiator_depth = std::min(answer.initiator_depth, request.responder_resources);
    ib_count(rdma_accept(id.get(), &answer), "rdma_accept", domain_.where);
    peer_ = std::move(id);
  }

  std::unique_ptr<QueuePair> finish() {
    listener_.reset();  // whoever comes now is refused by the kernel
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
      tried += "; the route uses ib:" + cm_device_name(*id);
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
  wish.private_data = offer.secret.data();
  wish.private_data_len = offer.secret.size();
  ib_count(rdma_connect(id.get(), &wish), "rdma_connect", domain.where);
  channel.expect(RDMA_CM_EVENT_CONNECT_RESPONSE, deadline, "rdma_connect" + to);
  queue_pair->make_ready(id.get(), offer.mtu);
  ib_count(rdma_establish(id.get()), "rdma_establish", domain.where);
  queue_pair->connected(std::move(channel), std::move(id));
  return queue_pair;
}

std::string ib_device_for_route(const std::string& local_address, const std::string& peer_address,
                                std::string& why_not) {
  constexpr std::chrono::seconds kPatience{2};
  const std::string where = "the devices of this machine";
  const auto parse = [](const std::string& address) {
    return address.empty() ? IbAddress() : IbAddress::parse(address);
  };
  try {
    IbAddress local = parse(local_address);
    IbAddress peer = parse(peer_address);
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
    if (!name.empty()) return "ib:" + name;
    // The address of all interfaces binds without choosing a device.
    why_not = "no RDMA device belongs to " + local.text();
  } catch (const Error& error) {
    why_not = error.what();
  }
  return {};
}

}  // namespace leat::detail
