#include "support/late_order.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "verbs/shared_copy.h"

namespace leat::detail {
namespace {

constexpr std::size_t kWordBytes = 8;
constexpr std::size_t kLeastWindow = 2;
constexpr std::size_t kMostWindow = 129;
constexpr std::size_t kMostPiecesPerStep = 16;

struct Range {
  std::uint64_t begin;
  std::uint64_t end;
};

// The aligned words that are touched.
Range words_of(std::uint64_t address, const LateWork::Piece& piece) {
  const std::uint64_t begin = address + piece.at;
  return {begin / kWordBytes, (begin + piece.bytes + kWordBytes - 1) / kWordBytes};
}

bool overlap(const Range& a, const Range& b) { return a.begin < b.end && b.begin < a.end; }

std::uint64_t local_address(const LateWork& work) {
  return reinterpret_cast<std::uint64_t>(work.request.local);
}

bool any_on(std::uint64_t address, const std::vector<LateWork::Piece>& pieces, const Range& words) {
  return std::ranges::any_of(
      pieces, [&](const auto& piece) { return overlap(words_of(address, piece), words); });
}

void land_piece(LateWork& work, const LateWork::Piece& piece) {
  if (!work.in_pieces) return;
  auto* local = static_cast<std::byte*>(work.request.local);
  copy_bytes(local + piece.at, work.bytes.data() + piece.at, piece.bytes);  // words whole
}

std::vector<LateWork::Piece> pieces_of(const SendRequest& request, std::size_t most) {
  const std::size_t words = request.bytes / kWordBytes + 1;
  const std::size_t step = (words / most + 1) * kWordBytes;
  std::vector<LateWork::Piece> pieces;
  for (std::size_t at = 0; at < request.bytes;) {
    const std::size_t into_word = (request.remote_address + at) % kWordBytes;
    const std::size_t bytes = std::min(step - into_word, request.bytes - at);
    pieces.push_back({at, bytes});
    at += bytes;
  }
  return pieces;
}

}  // namespace

LateOrder::LateOrder(std::uint64_t seed, Effects& effects, const Freedom& freedom)
    : effects_(effects),
      freedom_(freedom),
      random_(seed),
      window_(kLeastWindow + random_() % (kMostWindow - kLeastWindow + 1)) {}

void LateOrder::post(const SendRequest& request, bool in_pieces) {
  LateWork work;
  work.request = request;
  work.in_pieces = in_pieces;
  work.announces = request.opcode == Opcode::kWriteWithImmediate;
  if (in_pieces) {
    work.left = pieces_of(request, freedom_.most_pieces);
  } else if (!work.announces) {
    work.left = {{0, request.bytes}};
  }
  // Writes mostly in order, as it mostly is.
  if (work.reads() || chance(3)) {
    std::ranges::shuffle(work.left, random_);
  } else {
    std::ranges::reverse(work.left);
  }
  if (work.reads()) {
    work.bytes.resize(request.bytes);
  } else if (request.inlined && request.bytes != 0) {
    const auto* local = static_cast<const std::byte*>(request.local);
    work.bytes.assign(local, local + request.bytes);
  }
  works_.push_back(std::move(work));
}

std::size_t LateOrder::some() { return 1 + random_() % kMostPiecesPerStep; }

void LateOrder::step() {
  if (works_.empty()) return;
  step_one();
  while (!works_.empty() && works_.front().completed && works_.front().executed())
    works_.pop_front();
}

void LateOrder::step_one() {
  // The oldest one mostly, or nothing would come to its end.
  const std::size_t at = chance(2) ? 0 : random_() % std::min(works_.size(), window_);
  if (chance(4)) return complete_next();
  LateWork& work = works_[at];
  if (!is_free(at)) return;
  if (!work.landing.empty() && (work.left.empty() || chance(2))) {
    land(at);
  } else if (!work.left.empty()) {
    move(at);
  } else if (may_announce(at)) {
    work.announces = !effects_.announce(work);
  } else {
    complete_next();
  }
}

// No request before it, nor itself, waits for reads; and none before it may still be refused.
bool LateOrder::is_free(std::size_t at) const {
  bool reads_under_way = false;
  for (std::size_t i = 0; i <= at; ++i) {
    const LateWork& work = works_[i];
    if (work.request.fenced && reads_under_way) return false;
    if (i != at && work.may_be_refused()) return false;
    reads_under_way |= work.reads() && (!work.left.empty() || !work.landing.empty());
  }
  return true;
}

// A read comes after everything before it. What comes behind it need not.
bool LateOrder::may_execute_alone(std::size_t at) const {
  return std::all_of(works_.begin(), works_.begin() + static_cast<std::ptrdiff_t>(at),
                     [](const LateWork& earlier) { return earlier.executed(); });
}

// Whoever hears of it sees all writes before it; reads before it may still be on their way.
bool LateOrder::may_announce(std::size_t at) const {
  if (!works_[at].in_pieces && !may_execute_alone(at)) return false;
  return works_[at].announces && works_[at].left.empty() &&
         std::all_of(works_.begin(), works_.begin() + static_cast<std::ptrdiff_t>(at),
                     [](const LateWork& earlier) { return earlier.reads() || earlier.executed(); });
}

bool LateOrder::overtakes_same_word(std::size_t at, const LateWork::Piece& piece) const {
  const Range words = words_of(works_[at].request.remote_address, piece);
  for (std::size_t i = 0; i < at; ++i) {
    const LateWork& earlier = works_[i];
    if (!earlier.reads() && any_on(earlier.request.remote_address, earlier.left, words))
      return true;
  }
  return false;
}

// In pieces of the peer's words, which need not be words here.
bool LateOrder::lands_on_earlier(std::size_t at, const LateWork::Piece& piece) const {
  const Range words = words_of(local_address(works_[at]), piece);
  for (std::size_t i = 0; i < at; ++i) {
    const LateWork& earlier = works_[i];
    if (earlier.reads() && (any_on(local_address(earlier), earlier.left, words) ||
                            any_on(local_address(earlier), earlier.landing, words)))
      return true;
  }
  return false;
}

void LateOrder::move(std::size_t at) {
  LateWork& work = works_[at];
  if ((work.reads() || !work.in_pieces) && !may_execute_alone(at)) return;
  for (std::size_t left = some(); left != 0 && !work.left.empty(); --left) {
    const LateWork::Piece piece = work.left.back();
    if (!work.reads()) {
      if (overtakes_same_word(at, piece)) return;
      effects_.write(work, piece);
    } else {
      effects_.take(work, piece);
      work.landing.push_back(piece);
    }
    work.left.pop_back();
  }
}

void LateOrder::land(std::size_t at) {
  LateWork& work = works_[at];
  for (std::size_t left = some(); left != 0 && !work.landing.empty(); --left) {
    std::swap(work.landing[random_() % work.landing.size()], work.landing.back());
    const LateWork::Piece piece = work.landing.back();
    if (lands_on_earlier(at, piece)) return;
    effects_.use_local(work, [&] { land_piece(work, piece); });
    work.landing.pop_back();
  }
}

// In post order.
void LateOrder::complete_next() {
  const auto next = std::ranges::find(works_, false, &LateWork::completed);
  if (next == works_.end()) return;
  if (!is_free(static_cast<std::size_t>(next - works_.begin()))) return;
  LateWork& work = *next;
  if (!(work.executed() && work.landing.empty()) && !may_complete_early(work)) return;
  const auto keep = [&] { work.bytes.assign(work.source(), work.source() + work.request.bytes); };
  if (!work.left.empty() && work.bytes.empty() && work.request.bytes != 0 &&
      !effects_.use_local(work, keep))
    return;
  work.completed = true;
  effects_.complete(work);
}

// An empty one may too: a flush.
bool LateOrder::may_complete_early(LateWork& work) {
  if (!freedom_.completes_early || work.reads()) return false;
  if (work.request.opcode == Opcode::kWrite) return work.in_pieces || work.request.bytes == 0;
  if (work.in_pieces && !work.has_receive) work.has_receive = effects_.take_receive(work);
  return work.has_receive;
}

std::size_t LateOrder::uncompleted() const {
  return static_cast<std::size_t>(std::ranges::count(works_, false, &LateWork::completed));
}

std::vector<SendRequest> LateOrder::break_down(bool tells_all) {
  std::vector<SendRequest> lost;
  for (LateWork& work : works_) {
    if (work.completed) {
      for (const LateWork::Piece& piece : work.left) effects_.write(work, piece);
      if (work.announces) effects_.announce(work);
      continue;
    }
    tells_all = tells_all && work.executed();
    if (tells_all) {
      for (const LateWork::Piece& piece : work.landing)
        effects_.use_local(work, [&] { land_piece(work, piece); });
      effects_.complete(work);
    } else {
      lost.push_back(work.request);
    }
  }
  works_.clear();
  return lost;
}

}  // namespace leat::detail
