#include "verbs/shm/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/memfd.h"
#include "base/random.h"
#include "base/system_error.h"

namespace leat::detail::shm {
namespace {

constexpr std::size_t kHugePageBytes = MappedMemory::kHugePageBytes;

// Whole pages, or huge ones if there is at least one, because the page in which a file ends cannot
// be huge. Takes address space, but no memory.
std::size_t file_bytes_for(std::size_t bytes) {
  bytes += kRegionHeaderBytes;
  const std::size_t page = bytes < kHugePageBytes ? kRegionHeaderBytes : kHugePageBytes;
  return (bytes + page - 1) / page * page;
}

// A descriptor of the same memory that cannot be mapped for writing.
Fd reopen_read_only(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return Fd(check(open(path.c_str(), O_RDONLY | O_CLOEXEC), "open(memfd read-only)"));
}

}  // namespace

// A memfd and its mapping.
class OwnRegions::Region final : public MemoryRegion {
 public:
  Region(std::shared_ptr<OwnRegions> table, std::size_t bytes, unsigned access)
      : table_(std::move(table)), access_(access) {
    const std::size_t file_bytes = file_bytes_for(bytes);
    Fd fd(check(new_memfd("leat-region"), "memfd_create"));
    if (ftruncate(fd.get(), static_cast<off_t>(file_bytes)) != 0)
      throw system_error("ftruncate(memfd, " + std::to_string(file_bytes) + " bytes)", errno);
    // A peer that maps it can rely on its size, so a truncated file cannot cause a bus error.
    check(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
          "fcntl(memfd, F_ADD_SEALS)");
    mapping_ = MappedMemory::of_file(fd.get(), file_bytes, MappedMemory::Protection::kReadWrite);
    reinterpret_cast<RegionHeader*>(mapping_.data())->alive.store(1, std::memory_order_relaxed);
    memory_ = mapping_.span().subspan(kRegionHeaderBytes, bytes);
    prepared_.resize(file_bytes / kHugePageBytes);
    fd_ = (access & kRemoteWrite) != 0 ? std::move(fd) : reopen_read_only(fd.get());
    key_ = table_->claim(memory_);
    if (access != kLocalOnly) table_->publish(*this);
  }

  ~Region() override {
    auto* header = reinterpret_cast<RegionHeader*>(mapping_.data());
    header->alive.store(0, std::memory_order_relaxed);
    table_->remove(*this);
  }

  std::span<std::byte> memory() const override { return memory_; }
  std::uint32_t local_key() const override { return key_; }
  RemoteRegion remote() const override {
    return {reinterpret_cast<std::uint64_t>(memory_.data()), memory_.size(), key_};
  }

  void prepare(std::size_t offset, std::size_t bytes) noexcept override {
    if (!huge_pages_) return;
    const std::size_t start = kRegionHeaderBytes + offset;
    const std::size_t end = start + bytes;
    for (std::size_t page = start / kHugePageBytes;
         page < prepared_.size() && page * kHugePageBytes < end; ++page) {
      // A huge page of which less than half is used would cost more than it gains.
      const std::size_t used =
          std::min(end, (page + 1) * kHugePageBytes) - std::max(start, page * kHugePageBytes);
      if (used < kHugePageBytes / 2) continue;
      if (prepared_[page]) continue;
      prepared_[page] = true;
      huge_pages_ = mapping_.take_huge_page(page * kHugePageBytes);
      if (!huge_pages_) return;
    }
  }

  int fd() const { return fd_.get(); }
  RegionNotice notice(bool removed) const {
    const RemoteRegion here = remote();
    return {here.address, here.bytes, key_, access_, removed ? 1U : 0U, 0};
  }

 private:
  std::shared_ptr<OwnRegions> table_;
  unsigned access_ = kLocalOnly;
  Fd fd_;
  MappedMemory mapping_;
  std::span<std::byte> memory_;
  std::uint32_t key_ = 0;
  std::vector<bool> prepared_;  // by huge page of the mapping
  bool huge_pages_ = true;      // until the system refuses one
};

std::unique_ptr<MemoryRegion> OwnRegions::allocate(const std::shared_ptr<OwnRegions>& table,
                                                   std::size_t bytes, unsigned access) {
  return std::make_unique<Region>(table, bytes, access);
}

bool OwnRegions::holds(std::uint32_t key, const void* address, std::size_t bytes) const {
  const Slot& slot = slots_[slot_of(key)];
  // Acquire pairs with claim: address and size are those of this key.
  if (key == 0 || slot.key.load(std::memory_order_acquire) != key) return false;
  const std::uint64_t start = slot.address.load(std::memory_order_relaxed);
  const std::uint64_t size = slot.bytes.load(std::memory_order_relaxed);
  const std::uint64_t offset = reinterpret_cast<std::uint64_t>(address) - start;
  return offset <= size && bytes <= size - offset;
}

void OwnRegions::add_observer(RegionObserver* observer) {
  const std::lock_guard lock(mutex_);
  for (const Region* region : shared_)
    observer->region_changed(region->notice(false), region->fd());
  observers_.push_back(observer);
}

void OwnRegions::remove_observer(RegionObserver* observer) {
  const std::lock_guard lock(mutex_);
  std::erase(observers_, observer);
}

std::uint32_t OwnRegions::claim(std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; i < kMaxRegions; ++i) {
    Slot& slot = slots_[i];
    if (slot.key.load(std::memory_order_relaxed) != 0) continue;
    std::array<std::uint8_t, 4> random;
    fill_random(random);
    std::uint32_t key = 0;
    for (const std::uint8_t byte : random) key = key << 8 | byte;
    key = (key | 1U << 31) / kMaxRegions * kMaxRegions + i;  // never 0
    slot.address.store(reinterpret_cast<std::uint64_t>(memory.data()), std::memory_order_relaxed);
    slot.bytes.store(memory.size(), std::memory_order_relaxed);
    slot.key.store(key, std::memory_order_release);  // pairs with holds
    return key;
  }
  throw Error(ErrorCode::kResource, "device shm: all " + std::to_string(kMaxRegions) +
                                        " memory regions of this connection are in use");
}

void OwnRegions::publish(Region& region) {
  const std::lock_guard lock(mutex_);
  shared_.push_back(&region);
  for (RegionObserver* observer : observers_)
    observer->region_changed(region.notice(false), region.fd());
}

void OwnRegions::remove(Region& region) {
  const std::lock_guard lock(mutex_);
  slots_[slot_of(region.local_key())].key.store(0, std::memory_order_release);
  if (std::erase(shared_, &region) == 0) return;
  for (RegionObserver* observer : observers_) observer->region_changed(region.notice(true), -1);
}

std::unique_ptr<PeerRegion> PeerRegion::map(const RegionNotice& notice, int fd) {
  const auto reject = [](const char* why) -> Error {
    return {ErrorCode::kProtocol, std::string("device shm: the peer shared a region that ") + why};
  };
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) throw reject("is not a sealed memfd");
  struct stat status {};
  check(fstat(fd, &status), "fstat(memfd of the peer)");
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  if (file_bytes < kRegionHeaderBytes || notice.bytes > file_bytes - kRegionHeaderBytes)
    throw reject("is smaller than it says");
  if (notice.address > UINT64_MAX - notice.bytes) throw reject("wraps around the address space");

  auto region = std::make_unique<PeerRegion>();
  region->remote = {notice.address, notice.bytes, notice.key};
  region->access = notice.access & (kRemoteRead | kRemoteWrite);
  const bool writable = (region->access & kRemoteWrite) != 0;
  region->mapping = MappedMemory::of_file(
      fd, file_bytes,
      writable ? MappedMemory::Protection::kReadWrite : MappedMemory::Protection::kReadOnly);
  return region;
}

}  // namespace leat::detail::shm
