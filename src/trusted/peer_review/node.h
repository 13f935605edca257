// The state of a node of PeerReview.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "trusted/parts/orderer.h"
#include "trusted/parts/replies.h"
#include "trusted/parts/rounds.h"
#include "trusted/peer_review/replay.h"

namespace leat::trusted {

struct PeerNode::State {
  State(AttestationKernel& kernel, const Directory& directory, const SigningKey& key,
        const MachineFactory& make_machine, const PeerReviewOptions& options, StandingHook hook);

  void on_request(PartyId from, std::span<const std::byte> request, Outbox& outbox);
  // Takes in a record to be verified.
  void take_in(std::span<const std::byte> record);
  void settle(bool also_short, Outbox& outbox);
  void on_audit(PartyId from, std::span<const std::byte> message, Outbox& outbox);
  void on_proof(PartyId from, std::span<const std::byte> evidence);
  void idle(Outbox& outbox);

  Time now{};
  std::uint64_t next_number(PartyId client) { return state_.ledger().next_number(client); }
  // Counter of its own log, which is its stream.
  std::uint64_t next() const { return log_base_ + log_.size(); }

 private:
  struct Logged {
    Bytes record;
    std::vector<Bytes> received;
  };
  struct Child {
    std::size_t index = 0;
    std::uint64_t next = 0;          // of its own stream
    std::uint64_t acknowledged = 0;  // of the root's
    Time progress{};                 // when it began to owe what it owes now
    Time resent{};
    Standing standing = Standing::kTrusted;
  };
  struct Auditor {
    Nonce nonce{};
    std::uint64_t tail = 0;  // 0: has never asked
    std::uint64_t from = 0;
  };

  bool is_root() const { return self_ == 0; }
  PartyId id(std::size_t index) const { return options_.nodes[index].id; }
  std::uint32_t root_session() const { return detail::session_of(options_, 0); }

  // Logs the next entry, with everything received since the last one. Outgoing attests it and sends
  // it to the nodes concerned: the root's to its children, others to the parent.
  void log(detail::EntryType type, std::span<const std::byte> body);
  void forget();
  // The root's stream has become one record longer.
  void extend(bool by_content);
  void pass_on(std::span<const std::byte> record, Outbox& outbox);

  // Of the root.
  void order(bool also_short);
  std::uint64_t acknowledged() const;

  // Null if no child that this node still listens to has that session.
  Child* child_of(std::uint32_t session);
  void on_root_record(std::span<const std::byte> record, Outbox& outbox);
  void on_child_record(Child& child, std::span<const std::byte> record);
  void look_after(Child& child, Outbox& outbox);
  void change(PartyId node, Standing standing, Fault fault = {});

  AttestationKernel& kernel_;
  const Directory& directory_;
  const SigningKey& key_;
  const MachineFactory make_machine_;
  const PeerReviewOptions options_;
  const StandingHook hook_;
  const std::size_t self_;

  detail::PeerState state_;
  detail::Replies replies_;
  detail::Intake intake_;
  detail::Outgoing outgoing_;
  std::deque<Logged> log_;
  std::uint64_t log_base_ = 0;
  std::map<std::uint32_t, std::pair<std::uint64_t, std::vector<Bytes>>> inbox_;  // not logged yet

  std::deque<Bytes> root_records_;  // the last of the root's stream, for the children
  std::uint64_t root_next_ = 0;
  std::uint64_t contents_end_ = 0;  // behind the last content in it
  std::vector<Child> children_;
  bool resend_own_ = false;
  bool stopped_ = false;  // the root or the parent is exposed

  detail::Orderer orderer_;  // the root's

  std::map<PartyId, Auditor> auditors_;
  std::set<PartyId> exposed_;
  std::set<std::pair<PartyId, PartyId>> judged_;  // accuser and accused
};

}  // namespace leat::trusted
