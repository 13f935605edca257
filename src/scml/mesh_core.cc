#include "scml/mesh_core.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "scml/mesh_connect.h"

namespace leat::scml::detail {
namespace {

constexpr const char* kWithArrays = "planned";  // the transport
constexpr std::uint64_t kPlaceUnitBytes = 64;
// Messages that are looked at together while waiting, so that those that are here are not looked at
// again.
constexpr std::uint64_t kLookMessages = 4096;
// How long a party's death may take to be seen here after another party has ended because of it.
constexpr auto kBlameTime = std::chrono::milliseconds(300);

constexpr std::uint32_t bit(unsigned party) { return std::uint32_t{1} << party; }

std::string in_context(unsigned context) { return " of context " + std::to_string(context); }

}  // namespace

MeshCore::MeshCore(const MeshOptions& options)
    : self_(options.self),
      thread_(options.thread),
      carrier_(options.carrier),
      region_bytes_(region_bytes(options)),
      addresses_(options.addresses) {
  std::vector<Channel> channels = connect_parties(options);
  // A channel that came to be sealed has no message arrays; messages in contexts do as much.
  const Carrier streams = carrier_ == Carrier::kPlanned ? Carrier::kContexts : carrier_;
  for (Channel& channel : channels) {
    if (links_.size() == self_) links_.emplace_back();
    links_.push_back(channel.transport() == kWithArrays
                         ? make_planned_link(std::move(channel))
                         : make_stream_link(std::move(channel), streams, region_bytes_));
  }
  if (links_.size() == self_) links_.emplace_back();
}

// --- waiting and failing

template <typename Call>
auto MeshCore::of_party(unsigned peer, Call&& call) {
  Link& link = *links_[peer];
  try {
    return call(link);
  } catch (const Error& error) {
    if (failure_) throw;
    if (error.code() == ErrorCode::kInvalidArgument)
      throw Error(error.code(), name_of(peer) + ": " + error.what());
    if (error.code() == ErrorCode::kPeerDied) fail_ended(peer);
    fail(Error(error.code(), name_of(peer) + ": " + error.what(), {}, error.system_errno()));
  }
}

template <typename Try>
void MeshCore::wait(WaitFor wait_for, unsigned peer, const char* what, Try&& try_once) {
  const auto done = [&] {
    progress_all();
    if (try_once()) return true;
    if (links_[peer]->ended()) fail_ended(peer);
    return false;
  };
  for (;;) {
    std::array<Channel*, kMaxParties> channels{};
    std::array<unsigned, kMaxParties> owners{};
    std::size_t live = 0;
    for (unsigned party = 0; party < parties(); ++party) {
      if (party == self_ || links_[party]->ended()) continue;
      owners[live] = party;
      channels[live++] = &links_[party]->channel();
    }
    // The awaited party has not ended, or done() throws.
    if (live == 0 && done()) return;
    Channel* gone = nullptr;
    try {
      gone = wait_any(std::span(channels).first(live), wait_for, what, done);
    } catch (const Error& error) {
      if (failure_) throw;
      fail(Error(error.code(), name_of(peer) + ": " + error.what(), {}, error.system_errno()));
    }
    if (gone == nullptr) return;
    for (std::size_t i = 0; i < live; ++i) {
      if (channels[i] != gone || links_[owners[i]]->ended()) continue;
      fail(Error(ErrorCode::kPeerDied, name_of(owners[i]) + " died: its connection is gone"));
    }
  }
}

void MeshCore::progress(unsigned peer) {
  of_party(peer, [&](Link& link) {
    try {
      link.progress();
      if ((unposted_ & bit(peer)) != 0 && link.try_flush()) unposted_ &= ~bit(peer);
    } catch (const Error&) {
      // After an end in order the peer may be gone, and that end may have come since the look.
      if (!link.ended()) link.progress();
      if (!link.ended()) throw;
    }
  });
}

void MeshCore::progress_all() {
  for (unsigned peer = 0; peer < parties(); ++peer)
    if (peer != self_) progress(peer);
}

void MeshCore::post_pending() {
  for (unsigned peer = 0; unposted_ >> peer != 0; ++peer)
    if ((unposted_ & bit(peer)) != 0) progress(peer);
}

void MeshCore::check_usable() const {
  if (failure_) throw *failure_;
}

// The other parties are told by the end of their channels, so that none waits for this one.
void MeshCore::fail(const Error& error) {
  failure_ = error;
  for (const auto& link : links_)
    if (link != nullptr) link->channel().close();
  throw *failure_;
}

void MeshCore::fail_ended(unsigned peer) {
  try {
    links_[peer]->progress();
  } catch (const Error&) {
    // It says again what it said.
  }
  const bool ended = links_[peer]->ended();
  if (!ended) fail(Error(ErrorCode::kPeerDied, name_of(peer) + " died: its connection is gone"));
  // A party that ends too early has often met another's death, which is then the one to be named.
  if (!blaming_) {
    blaming_ = true;
    const auto until = std::chrono::steady_clock::now() + kBlameTime;
    for (unsigned other = 0; other < parties(); ++other) {
      if (other == self_ || links_[other]->ended()) continue;
      Channel* channel = &links_[other]->channel();
      Channel* gone = nullptr;
      try {
        gone = wait_any(std::span(&channel, 1), WaitFor::kRoom, "wait", [&] {
          progress(other);
          return links_[other]->ended() || std::chrono::steady_clock::now() > until;
        });
      } catch (const Error& error) {
        if (failure_) throw;
      }
      if (gone != nullptr && !links_[other]->ended())
        fail(Error(ErrorCode::kPeerDied, name_of(other) + " died: its connection is gone"));
    }
  }
  fail(Error(ErrorCode::kPeerDied,
             name_of(peer) + " ended; what is waited for will not come any more"));
}

std::string MeshCore::name_of(unsigned peer) const {
  return "party " + std::to_string(peer) + " (" + addresses_[peer] + ")";
}

// --- arrays

void MeshCore::check_array(unsigned context, const leat::MessageArray& array) const {
  if (context < kFirstContext || context >= kContextLimit)
    throw invalid(
        "open: there is no context " + std::to_string(static_cast<int>(context)) + " for messages",
        "Contexts are 1 to " + std::to_string(kContextLimit - 1) + ".");
  if (contexts_[context].open)
    throw invalid("open: context " + std::to_string(context) + " is open", "Close it first.");
  if (array.message_bytes == 0 || array.count == 0 || array.count > leat::MessageArray::kMaxCount ||
      array.base_bytes % kPlaceUnitBytes != 0)
    throw invalid("open: an array" + in_context(context) + " of " + std::to_string(array.count) +
                      " messages of " + std::to_string(array.message_bytes) + " bytes at " +
                      std::to_string(array.base_bytes),
                  "There are 1 to " + std::to_string(leat::MessageArray::kMaxCount) +
                      " messages of at least a byte, and arrays begin at multiples of 64.");
  const std::uint64_t bytes = array.message_bytes * array.count;
  if (array.base_bytes > region_bytes_ || bytes > region_bytes_ - array.base_bytes)
    throw invalid("open: the array" + in_context(context) + " ends at " +
                      std::to_string(array.base_bytes) + " + " + std::to_string(bytes) +
                      " bytes, the region has " + std::to_string(region_bytes_),
                  "Raise planned_bytes on all parties.");
  for (const unsigned other : open_) {
    const leat::MessageArray& theirs = contexts_[other].array;
    if (theirs.base_bytes < array.base_bytes + bytes &&
        array.base_bytes < theirs.base_bytes + theirs.message_bytes * theirs.count)
      throw invalid("open: the arrays of contexts " + std::to_string(context) + " and " +
                        std::to_string(other) + " overlap",
                    "Close the other first, or plan another place.");
  }
}

void MeshCore::open(unsigned context, const leat::MessageArray& array,
                    std::span<const Flow> flows) {
  check_usable();
  check_array(context, array);
  Context opened;
  opened.array = array;
  opened.open = true;
  if (array.incoming == leat::MessageArray::kAll) opened.array.incoming = array.count;
  if (opened.array.incoming > array.count)
    throw invalid("open: of the " + std::to_string(array.count) + " messages" +
                  in_context(context) + " " + std::to_string(array.incoming) + " are to come");
  for (const Flow& flow : flows) {
    if (flow.sender >= parties() || flow.receiver >= parties() || flow.sender == flow.receiver)
      throw invalid("open: a flow" + in_context(context) + " from party " +
                    std::to_string(flow.sender) + " to party " + std::to_string(flow.receiver) +
                    ", of " + std::to_string(parties()) + " parties");
    if (flow.sender == self_) opened.sends_to |= bit(flow.receiver);
    if (flow.receiver == self_) opened.receives_from |= bit(flow.sender);
  }
  // What most links would refuse is refused before any peer is told.
  for (unsigned peer = 0; peer < parties(); ++peer) {
    if (((opened.sends_to | opened.receives_from) & bit(peer)) == 0) continue;
    const std::uint64_t most = links_[peer]->max_message_bytes();
    if (array.message_bytes > most)
      throw invalid("open: messages" + in_context(context) + " have " +
                        std::to_string(array.message_bytes) + " bytes, those to and from " +
                        name_of(peer) + " at most " + std::to_string(most),
                    "Plan more and smaller messages.");
  }
  bool told = false;
  for (unsigned peer = 0; peer < parties(); ++peer) {
    if (((opened.sends_to | opened.receives_from) & bit(peer)) == 0) continue;
    leat::MessageArray theirs = opened.array;
    if ((opened.receives_from & bit(peer)) == 0) theirs.incoming = 0;
    try {
      of_party(peer, [&](Link& link) { link.open(context, theirs); });
    } catch (const Error& error) {
      if (told && !failure_) fail(error);  // another peer holds open what is not
      throw;
    }
    told = true;
  }
  contexts_[context] = opened;
  open_.push_back(context);
}

void MeshCore::close(unsigned context) {
  check_usable();
  if (!is_open(context))
    throw invalid("close: context " + std::to_string(context) + " is not open");
  const Context& closing = contexts_[context];
  post_pending();
  for (unsigned peer = 0; peer < parties(); ++peer) {
    if (((closing.sends_to | closing.receives_from) & bit(peer)) == 0) continue;
    const auto complete = [&](Link& link) { return link.missing(context) == 0 && link.try_post(); };
    if (!of_party(peer, complete))
      wait(WaitFor::kMessages, peer, "close", [&] { return of_party(peer, complete); });
  }
  for (unsigned peer = 0; peer < parties(); ++peer)
    if (((closing.sends_to | closing.receives_from) & bit(peer)) != 0)
      of_party(peer, [&](Link& link) { link.close(context); });
  contexts_[context].open = false;
  std::erase(open_, context);
  std::ranges::replace(reserved_, context, 0U);
  if (selected_ == context) selected_ = 0;
}

void MeshCore::select(unsigned context) {
  check_usable();
  if (!is_open(context))
    throw invalid("select: context " + std::to_string(context) + " is not open", "Open it first.");
  selected_ = context;
}

MeshCore::Context& MeshCore::selected() {
  check_usable();
  if (selected_ == 0) throw invalid("no context is selected", "Call select() after open().");
  return contexts_[selected_];
}

Link& MeshCore::link_to(unsigned peer, Parties allowed, const char* what) {
  if (peer >= parties() || (allowed & bit(peer)) == 0)
    throw invalid(std::string(what) + " party " + std::to_string(peer) + ": context " +
                  std::to_string(selected_) + " has no such flow of party " +
                  std::to_string(self_));
  return *links_[peer];
}

// --- sending

void MeshCore::send(unsigned peer, std::uint64_t index, std::span<const std::byte> bytes) {
  Context& context = selected();
  link_to(peer, context.sends_to, "send to");
  const std::uint64_t each = context.array.message_bytes;
  const auto sent = [&] {
    const std::uint64_t taken =
        of_party(peer, [&](Link& link) { return link.try_send(selected_, index, bytes); });
    index += taken;
    bytes = bytes.subspan(taken * each);
    return bytes.empty();
  };
  unposted_ |= bit(peer);
  if (!sent()) wait(WaitFor::kRoom, peer, "send", sent);
}

void MeshCore::send_next(unsigned peer, std::span<const std::byte> bytes) {
  Context& context = selected();
  link_to(peer, context.sends_to, "send to");
  send(peer, context.next_sent[peer], bytes);
  context.next_sent[peer] += bytes.size() / context.array.message_bytes;
}

std::span<std::byte> MeshCore::reserve(unsigned peer, std::uint64_t index, std::uint64_t count) {
  link_to(peer, selected().sends_to, "reserve for");
  std::span<std::byte> memory;
  const auto try_once = [&] {
    memory = of_party(peer, [&](Link& link) { return link.try_reserve(selected_, index, count); });
    return memory.data() != nullptr;
  };
  reserved_[peer] = 0;
  if (!try_once()) wait(WaitFor::kRoom, peer, "reserve", try_once);
  reserved_[peer] = selected_;
  return memory;
}

void MeshCore::commit(unsigned peer) {
  check_usable();
  if (peer >= parties() || std::exchange(reserved_[peer], 0U) == 0)
    throw invalid("commit to party " + std::to_string(peer) + " without a reservation");
  const auto try_once = [&] {
    return of_party(peer, [](Link& link) { return link.try_commit(); });
  };
  unposted_ |= bit(peer);
  if (!try_once()) wait(WaitFor::kRoom, peer, "commit", try_once);
}

// --- receiving

std::span<const std::byte> MeshCore::receive(unsigned peer, std::uint64_t index,
                                             std::uint64_t count) {
  const Context& context = selected();
  Link& link = link_to(peer, context.receives_from, "receive from");
  if (count == 0 || index >= context.array.count || count > context.array.count - index)
    throw invalid("receive: " + std::to_string(count) + " messages from index " +
                  std::to_string(index) + " on: the array" + in_context(selected_) + " has " +
                  std::to_string(context.array.count));
  if (unposted_ != 0) post_pending();
  std::uint64_t next = index;
  const auto here = [&](Link& from) {
    while (next < index + count) {
      const std::uint64_t n = std::min(kLookMessages, index + count - next);
      if (!from.arrived(selected_, next, n)) return false;
      next += n;
    }
    return true;
  };
  if (!of_party(peer, here))
    wait(WaitFor::kMessages, peer, "receive", [&] { return of_party(peer, here); });
  return link.view(selected_, index, count);
}

std::span<const std::byte> MeshCore::receive_next(unsigned peer, std::uint64_t count) {
  Context& context = selected();
  link_to(peer, context.receives_from, "receive from");
  const auto bytes = receive(peer, context.next_received[peer], count);
  context.next_received[peer] += count;
  return bytes;
}

// --- all parties

void MeshCore::flush() {
  check_usable();
  for (unsigned peer = 0; peer < parties(); ++peer) {
    if (peer == self_) continue;
    const auto try_once = [&] {
      return of_party(peer, [](Link& link) { return link.try_flush(); });
    };
    if (!try_once()) wait(WaitFor::kRoom, peer, "flush", try_once);
  }
  unposted_ = 0;
}

void MeshCore::barrier() {
  check_usable();
  ++barriers_;
  for (unsigned peer = 0; peer < parties(); ++peer) {
    if (peer == self_) continue;
    const auto tell = [&] {
      return of_party(peer, [&](Link& link) { return link.try_tell_barrier(barriers_); });
    };
    if (!tell()) wait(WaitFor::kRoom, peer, "barrier", tell);
  }
  for (unsigned peer = 0; peer < parties(); ++peer) {
    if (peer == self_) continue;
    wait(WaitFor::kMessages, peer, "barrier",
         [&] { return links_[peer]->barriers_heard() >= barriers_; });
  }
}

Channel& MeshCore::channel(unsigned peer) {
  if (peer >= parties() || peer == self_)
    throw invalid("there is no channel to party " + std::to_string(peer));
  return links_[peer]->channel();
}

Stats MeshCore::stats() const {
  Stats sum;
  for (const auto& link : links_)
    if (link != nullptr) sum += link->channel().stats();
  return sum;
}

}  // namespace leat::scml::detail
