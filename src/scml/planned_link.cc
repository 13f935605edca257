#include <cstring>
#include <utility>

#include "leat/error.h"
#include "leat/planned.h"
#include "scml/mesh_link.h"

namespace leat::scml::detail {

bool Link::try_tell_barrier(std::uint64_t n) {
  const LinkHeader header{.index = n};
  return channel().try_send(std::as_bytes(std::span(&header, 1)));
}

void Link::hear(const Message& message) {
  LinkHeader header;
  if (message.size() == sizeof header) std::memcpy(&header, message.data(), sizeof header);
  if (message.size() != sizeof header || header.context != 0 || header.index != barriers_ + 1)
    throw Error(ErrorCode::kProtocol, "the peer sent something that is not a word of a mesh");
  ++barriers_;
}

namespace {

class PlannedLink final : public Link {
 public:
  explicit PlannedLink(Channel channel) : planned_(std::move(channel)) {}

  Channel& channel() override { return planned_.channel(); }
  std::uint64_t max_message_bytes() override { return planned_.max_message_bytes(); }
  void open(unsigned context, const leat::MessageArray& array) override {
    planned_.open(context, array);
  }
  void close(unsigned context) override { planned_.close(context); }
  std::uint64_t missing(unsigned context) const override { return planned_.missing(context); }
  std::uint64_t try_send(unsigned context, std::uint64_t index,
                         std::span<const std::byte> bytes) override {
    return planned_.try_send(context, index, bytes);
  }
  std::span<std::byte> try_reserve(unsigned context, std::uint64_t index,
                                   std::uint64_t count) override {
    return planned_.try_reserve(context, index, count);
  }
  bool try_commit() override { return planned_.try_commit(); }
  bool arrived(unsigned context, std::uint64_t index, std::uint64_t count) override {
    return view(context, index, count).data() != nullptr;
  }
  std::span<const std::byte> view(unsigned context, std::uint64_t index,
                                  std::uint64_t count) override {
    return planned_.try_receive(context, index, count);
  }
  // A look for words takes in every arrival and posts what is pending.
  void progress() override {
    while (!ended_) {
      const auto message = channel().try_receive();
      if (!message) return;
      if (*message)
        hear(*message);
      else
        ended_ = true;
    }
  }
  bool try_post() override { return planned_.try_flush(); }
  bool try_flush() override { return planned_.try_flush(); }

 private:
  PlannedChannel planned_;
};

}  // namespace

std::unique_ptr<Link> make_planned_link(Channel channel) {
  return std::make_unique<PlannedLink>(std::move(channel));
}

}  // namespace leat::scml::detail
