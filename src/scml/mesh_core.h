// The implementation of a Mesh.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "leat/error.h"
#include "leat/scml/party.h"
#include "leat/wait.h"
#include "scml/mesh_link.h"

namespace leat::scml::detail {

// Contract and threads as for Mesh.
class MeshCore {
 public:
  static constexpr const char* kWhenEmpty = "this mesh was moved from";
  explicit MeshCore(const MeshOptions& options);

  unsigned self() const noexcept { return self_; }
  unsigned parties() const noexcept { return static_cast<unsigned>(links_.size()); }
  unsigned thread() const noexcept { return thread_; }
  Carrier carrier() const noexcept { return carrier_; }

  void open(unsigned context, const leat::MessageArray& array, std::span<const Flow> flows);
  void close(unsigned context);
  bool is_open(unsigned context) const noexcept {
    return context < kContextLimit && contexts_[context].open;
  }
  void select(unsigned context);

  void send(unsigned peer, std::uint64_t index, std::span<const std::byte> bytes);
  void send_next(unsigned peer, std::span<const std::byte> bytes);
  std::span<std::byte> reserve(unsigned peer, std::uint64_t index, std::uint64_t count);
  void commit(unsigned peer);
  std::span<const std::byte> receive(unsigned peer, std::uint64_t index, std::uint64_t count);
  std::span<const std::byte> receive_next(unsigned peer, std::uint64_t count);

  void flush();
  void barrier();

  Channel& channel(unsigned peer);
  Stats stats() const;

 private:
  using Parties = std::uint32_t;  // bit p stands for party p

  struct Context {
    leat::MessageArray array;
    bool open = false;
    Parties sends_to = 0;
    Parties receives_from = 0;
    // For calls without an index.
    std::array<std::uint64_t, kMaxParties> next_sent{};
    std::array<std::uint64_t, kMaxParties> next_received{};
  };

  void check_usable() const;
  void check_array(unsigned context, const leat::MessageArray& array) const;
  Context& selected();
  // The link to a peer with which the selected context has a flow in that direction.
  Link& link_to(unsigned peer, Parties allowed, const char* what);

  // Calls `call` with the link to `peer`. An error gets that party's name and, unless it is
  // kInvalidArgument, ends the mesh.
  template <typename Call>
  auto of_party(unsigned peer, Call&& call);
  // Waits for `peer` until `try_once` returns true, and takes in what arrives from all parties
  // meanwhile.
  template <typename Try>
  void wait(WaitFor wait_for, unsigned peer, const char* what, Try&& try_once);
  void progress(unsigned peer);
  void progress_all();
  void post_pending();
  [[noreturn]] void fail(const Error& error);
  // That party ended or died while this one waited for it.
  [[noreturn]] void fail_ended(unsigned peer);
  std::string name_of(unsigned peer) const;

  unsigned self_;
  unsigned thread_;
  Carrier carrier_;
  std::uint64_t region_bytes_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<Link>> links_;  // [self_] is null
  std::array<Context, kContextLimit> contexts_;
  std::vector<unsigned> open_;                    // contexts
  unsigned selected_ = 0;                         // 0: none
  Parties unposted_ = 0;                          // peers for whom something may be pending
  std::array<unsigned, kMaxParties> reserved_{};  // in which context; 0: nothing
  std::uint64_t barriers_ = 0;
  bool blaming_ = false;
  std::optional<Error> failure_;
};

}  // namespace leat::scml::detail
