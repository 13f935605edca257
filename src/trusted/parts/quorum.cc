#include "trusted/parts/quorum.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/wire.h"
#include "leat/error.h"
#include "trusted/parts/configuration_messages.h"

namespace leat::trusted::detail {
namespace {

// How far a node may be behind those that know more of this client's numbers: a window of records
// (256) with the most commands each, and the most requests that were under way.
constexpr std::uint64_t kMostBehind = std::uint64_t{512} * kMaxCommands;

// What a service is shown of answers at most.
constexpr std::size_t kMostShownBytes = std::size_t{1} << 20;

View outputs_of(View reply) { return read_signed(reply, MessageType::kReply)->items.bytes(); }

}  // namespace

Quorum::Quorum(const Directory& directory, const SigningKey& key, const ClientOptions& options,
               std::uint64_t first)
    : directory_(directory), key_(key), options_(options), next_(first) {
  if (options.quorum == 0 || options.quorum > options.nodes.size() || options.window == 0 ||
      options.window > kMaxUnderWay)
    throw Error(ErrorCode::kInvalidArgument,
                "a client of " + std::to_string(options.nodes.size()) + " nodes cannot wait for " +
                    std::to_string(options.quorum) + " equal answers with " +
                    std::to_string(options.window) + " requests under way",
                "The quorum is 1 to the number of nodes, the window 1 to 16.");
}

void Quorum::learn(PartyId node, std::uint64_t next) {
  if (!has_asked_ && std::ranges::count(options_.nodes, node) > 0) numbers_.try_emplace(node, next);
}

// Of liars there are fewer than a quorum: a number that so many nodes name or exceed is at most
// what a correct one names, and with one of them late it is at most so much too low.
std::uint64_t Quorum::learned() const {
  if (numbers_.size() < options_.quorum) return 0;
  std::vector<std::uint64_t> numbers;
  for (const auto& [node, next] : numbers_) numbers.push_back(next);
  std::ranges::sort(numbers, std::greater<>());
  return numbers[options_.quorum - 1];
}

bool Quorum::should_learn_more() const {
  if (has_asked_ || numbers_.size() == options_.nodes.size()) return false;
  return numbers_.size() < options_.quorum ||
         std::ranges::any_of(numbers_, [this](const auto& one) { return one.second > next_; });
}

const Bytes& Quorum::submit(std::span<const Bytes> commands) {
  if (commands.empty() || commands.size() > kMaxCommands)
    throw Error(ErrorCode::kTooLarge, "a request has 1 to " + std::to_string(kMaxCommands) +
                                          " commands, not " + std::to_string(commands.size()));
  Bytes body;
  for (const Bytes& command : commands) {
    if (command.size() > kMaxItemBytes)
      throw Error(ErrorCode::kTooLarge, "a command has up to " + std::to_string(kMaxItemBytes) +
                                            " bytes, not " + std::to_string(command.size()));
    Items::append(body, command);
  }
  constexpr std::uint64_t kLast = std::numeric_limits<std::uint64_t>::max() - kMostBehind;
  if (!std::exchange(has_asked_, true) && learned() > next_ && learned() < kLast)
    next_ = learned() + kMostBehind;
  Request request{.first = next_, .count = commands.size()};
  const Signed content{.type = MessageType::kRequest,
                       .sender = options_.self,
                       .epoch = options_.epoch,
                       .first = next_,
                       .items = *Items::read(body, commands.size())};
  request.digest = digest_of_request(content);
  request.bytes = write_signed(key_, content);
  if (request.bytes.size() > kMaxRequestBytes)
    throw Error(ErrorCode::kTooLarge, "a request has up to " + std::to_string(kMaxRequestBytes) +
                                          " bytes, not " + std::to_string(request.bytes.size()));
  next_ += commands.size();
  return requests_.emplace_back(std::move(request)).bytes;
}

std::vector<View> Quorum::unanswered() const {
  std::vector<View> requests;
  for (const Request& request : requests_)
    if (!request.believed) requests.emplace_back(request.bytes);
  return requests;
}

bool Quorum::receive(View message) {
  if (type_of(message) == MessageType::kRefused) return receive_refusal(message);
  const auto content = read_signed(message, MessageType::kReply);
  if (!content || content->target != options_.self || content->epoch != options_.epoch ||
      std::ranges::find(options_.nodes, content->sender) == options_.nodes.end())
    return false;
  const auto request = std::ranges::find(requests_, content->first, &Request::first);
  // Verified only while it can still matter. A node's first word counts, and no other.
  if (request == requests_.end() || request->believed || request->count != content->items.count() ||
      !std::ranges::equal(request->digest, content->request) ||
      request->replies.contains(content->sender) || !verify_signed(directory_, message, *content))
    return false;
  const View outputs = content->items.bytes();
  request->replies.try_emplace(content->sender, message.begin(), message.end());
  const auto equal = std::ranges::count_if(request->replies, [&](const auto& reply) {
    return std::ranges::equal(outputs_of(reply.second), outputs);
  });
  if (static_cast<std::size_t>(equal) >= options_.quorum)
    request->believed.emplace(outputs.begin(), outputs.end());
  return true;
}

bool Quorum::receive_refusal(View message) {
  const auto content = read_signed(message, MessageType::kRefused);
  if (!content || content->target != options_.self || content->epoch != options_.epoch ||
      std::ranges::find(options_.nodes, content->sender) == options_.nodes.end())
    return false;
  const auto request = std::ranges::find(requests_, content->first, &Request::first);
  const View number = Items(content->items).take();
  if (request == requests_.end() || request->believed || number.size() != sizeof(std::uint64_t) ||
      request->refusals.contains(content->sender) || !verify_signed(directory_, message, *content))
    return false;
  request->refusals[content->sender] = leat::detail::WireReader(number).number<std::uint64_t>();
  return true;
}

// As for answers, so many that one of them is correct; that one will not have it ordered.
void Quorum::check_refused() {
  if (requests_.empty() || requests_.front().believed) return;
  if (is_lost(requests_.front())) {
    const std::uint64_t number = requests_.front().first;
    requests_.pop_front();
    throw Error(
        ErrorCode::kUnavailable,
        "request " + std::to_string(number) + " of client " + std::to_string(options_.self) +
            " was executed, or another one of that number, and too few nodes still have " +
            "an answer",
        "Ask for less in one request: answers above " + std::to_string(kMaxKeptAnswerBytes >> 20) +
            " MiB are sent once and not " + "kept. And no two clients may have one key at a time.");
  }
  const auto too_large = [](const auto& refusal) { return refusal.second > 0; };
  if (static_cast<std::size_t>(std::ranges::count_if(requests_.front().refusals, too_large)) <
      options_.quorum)
    return;
  const Request request = std::move(requests_.front());
  requests_.pop_front();
  const auto least = std::ranges::min_element(
      request.refusals, {}, [](const auto& refusal) { return refusal.second - 1; });  // 0 is none
  throw Error(ErrorCode::kTooLarge,
              "request " + std::to_string(request.first) + " of client " +
                  std::to_string(options_.self) + " has " + std::to_string(request.bytes.size()) +
                  " bytes, and is refused: node " + std::to_string(least->first) +
                  " attests requests of up to " + std::to_string(least->second),
              "Sign fewer commands at once, or see --max-payload of the nodes' leat-attestd.");
}

// One that has answered may have forgotten since; its word is there.
bool Quorum::is_lost(const Request& request) const {
  const auto forgot =
      static_cast<std::size_t>(std::ranges::count_if(request.refusals, [&](const auto& refusal) {
        return refusal.second == 0 && !request.replies.contains(refusal.first);
      }));
  // So many that a correct one is among them.
  if (forgot == 0 || forgot + request.replies.size() < options_.quorum) return false;
  std::size_t most_equal = 0;
  for (const auto& reply : request.replies)
    most_equal = std::max(
        most_equal,
        static_cast<std::size_t>(std::ranges::count_if(request.replies, [&](const auto& other) {
          return std::ranges::equal(outputs_of(other.second), outputs_of(reply.second));
        })));
  const std::size_t to_come = options_.nodes.size() - forgot - request.replies.size();
  return most_equal + to_come < options_.quorum;
}

std::optional<Answer> Quorum::take() {
  if (requests_.empty() || !requests_.front().believed) return std::nullopt;
  const Request& request = requests_.front();
  Answer answer{.first = request.first};
  Items items = *Items::read(*request.believed, request.count);
  while (items.count() > 0) {
    const View output = items.take();
    answer.outputs.emplace_back(output.begin(), output.end());
  }
  requests_.pop_front();
  return answer;
}

void Quorum::reconfigure(std::uint64_t epoch, const std::vector<PartyId>& nodes) {
  options_.epoch = epoch;
  options_.nodes = nodes;
  options_.quorum = nodes.size();
  for (Request& request : requests_) {
    if (request.believed) continue;
    auto content = *read_signed(request.bytes, MessageType::kRequest);
    content.epoch = epoch;
    request.bytes = write_signed(key_, content);
    request.replies.clear();
    request.refusals.clear();
  }
}

Bytes Quorum::complaint() const {
  for (const Request& request : requests_) {
    if (request.believed) continue;
    std::vector<View> replies;
    std::size_t bytes = 0;
    for (const auto& [node, reply] : request.replies) {
      bytes += reply.size();
      if (bytes <= kMostShownBytes) replies.emplace_back(reply);
    }
    return write_complaint(request.bytes, replies);
  }
  return {};
}

bool Quorum::in_conflict() const {
  return std::ranges::any_of(requests_, [](const Request& request) {
    return !request.believed && std::ranges::any_of(request.replies, [&](const auto& reply) {
      return !std::ranges::equal(outputs_of(reply.second),
                                 outputs_of(request.replies.begin()->second));
    });
  });
}

std::string Quorum::describe() const {
  const Request& request = requests_.front();
  std::string text = "request " + std::to_string(request.first) + " of client " +
                     std::to_string(options_.self) + " has no " + std::to_string(options_.quorum) +
                     " equal answers";
  std::string silent;
  for (const PartyId node : options_.nodes)
    if (!request.replies.contains(node) && !request.refusals.contains(node))
      silent += " " + std::to_string(node);
  const PartyId leader = options_.nodes.front();
  const bool leader_silent =
      !request.replies.contains(leader) && !request.refusals.contains(leader);
  if (!silent.empty()) text += "; no word from node" + silent;
  for (const auto& [node, most] : request.refusals)
    text += "; node " + std::to_string(node) +
            (most == 0 ? " keeps no answer to it"
                       : " refuses requests above " + std::to_string(most) +
                             " bytes, and this one has " + std::to_string(request.bytes.size()));
  if (leader_silent) text += " (" + std::to_string(leader) + " leads)";
  return text;
}

}  // namespace leat::trusted::detail
