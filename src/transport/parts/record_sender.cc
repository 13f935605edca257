#include "transport/parts/record_sender.h"

#include <string>

#include "leat/error.h"

namespace leat::detail {

Settings settings_of_records(const Settings& settings, std::size_t most, std::size_t overhead) {
  Settings of_records = settings;
  of_records.max_message_bytes = std::min(settings.max_message_bytes, most) + overhead;
  return of_records;
}

Facts facts_of_records(const Facts& inner, std::size_t overhead) {
  if (inner.max_message_bytes < overhead)
    throw Error(ErrorCode::kProtocol, "the peer takes no message as long as an empty record");
  Facts facts = inner;
  const auto shorten = [&](std::size_t& bytes) { bytes -= std::min(bytes, overhead); };
  shorten(facts.max_message_bytes);
  std::ranges::for_each(facts.max_in_place_bytes, shorten);
  std::ranges::for_each(facts.max_at_once_bytes, shorten);
  facts.reserves_room = false;
  facts.takes_back = false;
  // Beside the records.
  facts.arrays = nullptr;
  return facts;
}

void refuse_another_message(const char* how) {
  throw Error(ErrorCode::kInvalidArgument,
              "another message is to be sent first: it is " + std::string(how) +
                  ", has its place in the order and cannot be taken back",
              "Go on with that message, or connect again.");
}

}  // namespace leat::detail
