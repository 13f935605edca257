// Memory regions of the shm device: a memfd for each, mapped by the owner and by its peers.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fd.h"
#include "base/mapped_memory.h"
#include "verbs/device.h"
#include "verbs/shm/socket.h"

namespace leat::detail::shm {

// The low bits of a key are the region's place in the tables here; the rest is random, so that a
// stale or guessed key opens no other region.
inline constexpr std::uint32_t kMaxRegions = 256;
inline std::uint32_t slot_of(std::uint32_t key) { return key % kMaxRegions; }

// The first page of a region's memfd. Peers check it before each access.
struct RegionHeader {
  std::atomic<std::uint32_t> alive;  // 0 once the owner has revoked the key
};
inline constexpr std::size_t kRegionHeaderBytes = 4096;

// Is notified when regions come and go, and passes that on to the peer.
class RegionObserver {
 public:
  virtual ~RegionObserver() = default;
  // `fd` is valid during the call only; -1 if the region has gone.
  virtual void region_changed(const RegionNotice& notice, int fd) noexcept = 0;
};

// The regions that one device owns. Threads: any; region() is wait-free.
class OwnRegions {
 public:
  // The region keeps the table alive.
  static std::unique_ptr<MemoryRegion> allocate(const std::shared_ptr<OwnRegions>& table,
                                                std::size_t bytes, unsigned access);

  // Whether `key` names a region here that contains all of [address, address + bytes).
  bool holds(std::uint32_t key, const void* address, std::size_t bytes) const;

  // Reports to the observer all regions with remote access now, and each change from now on.
  void add_observer(RegionObserver* observer);
  void remove_observer(RegionObserver* observer);

 private:
  class Region;
  struct Slot {
    std::atomic<std::uint32_t> key{0};  // 0: free
    std::atomic<std::uint64_t> address{0};
    std::atomic<std::uint64_t> bytes{0};
  };

  std::uint32_t claim(std::span<std::byte> memory);
  void publish(Region& region);
  void remove(Region& region);

  mutable std::mutex mutex_;  // guards all but slots_ as read by holds()
  std::array<Slot, kMaxRegions> slots_;
  std::vector<Region*> shared_;
  std::vector<RegionObserver*> observers_;
};

// A region of the peer, mapped here.
struct PeerRegion {
  RemoteRegion remote;
  unsigned access = kLocalOnly;
  MappedMemory mapping;

  // Maps what the notice describes. Throws kProtocol if descriptor and notice contradict each
  // other, as a hostile peer's may.
  static std::unique_ptr<PeerRegion> map(const RegionNotice& notice, int fd);
  bool alive() const {
    // Relaxed: revoking a key orders nothing else.
    return reinterpret_cast<const RegionHeader*>(mapping.data())
               ->alive.load(std::memory_order_relaxed) != 0;
  }
  std::byte* at(std::uint64_t address) const {
    return mapping.data() + kRegionHeaderBytes + (address - remote.address);
  }
};

}  // namespace leat::detail::shm
