#include "trusted/parts/quorum.h"

#include <algorithm>

#include "base/wire.h"
#include "leat/error.h"
#include "trusted/parts/configuration_messages.h"

namespace leat::trusted::detail {
namespace {

// What a service is shown of answers at most.
constexpr std::size_t kMostShownBytes = std::size_t{1} << 20;

View outputs_of(View reply) { return read_signed(reply, MessageType::kReply)->items.bytes(); }

}  // namespace

Quorum::Quorum(const Directory& directory, const SigningKey& key, const ClientOptions& options,
               std::uint64_t first)
    : directory_(directory), key_(key), options_(options), next_(first) {
  if (options.quorum == 0 || options.quorum > options.nodes.size() || options.window == 0 ||
      options.window > 16)
    throw Error(ErrorCode::kInvalidArgument,
                "a client of " + std::to_string(options.nodes.size()) + " nodes cannot wait for " +
                    std::to_string(options.quorum) + " equal answers with " +
                    std::to_string(options.window) + " requests under way",
                "The quorum is 1 to the number of nodes, the window 1 to 16.");
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
  Request request{.first = next_, .count = commands.size()};
  request.bytes = write_signed(key_, {.type = MessageType::kRequest,
                                      .sender = options_.self,
                                      .epoch = options_.epoch,
                                      .first = next_,
                                      .items = *Items::read(body, commands.size())});
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
  if (requests_.empty() || requests_.front().believed ||
      requests_.front().refusals.size() < options_.quorum)
    return;
  const Request request = std::move(requests_.front());
  requests_.pop_front();
  const auto least = std::ranges::min_element(request.refusals, {},
                                              [](const auto& refusal) { return refusal.second; });
  throw Error(ErrorCode::kTooLarge,
              "request " + std::to_string(request.first) + " of client " +
                  std::to_string(options_.self) + " has " + std::to_string(request.bytes.size()) +
                  " bytes, and is refused: node " + std::to_string(least->first) +
                  " attests requests of up to " + std::to_string(least->second),
              "Sign fewer commands at once, or see --max-payload of the nodes' leat-attestd.");
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
    text += "; node " + std::to_string(node) + " refuses requests above " + std::to_string(most) +
            " bytes, and this one has " + std::to_string(request.bytes.size());
  if (leader_silent) text += " (" + std::to_string(leader) + " leads)";
  return text;
}

}  // namespace leat::trusted::detail
