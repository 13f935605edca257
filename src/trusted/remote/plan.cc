#include "trusted/remote/plan.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/quote.h"
#include "leat/error.h"

namespace leat::trusted::remote {
namespace {

using nlohmann::json;

constexpr std::size_t kSessionKeyBytes = 32;

[[noreturn]] void bad_plan(const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, why, "docs/remote_attestation.md describes plans.");
}

// An object of which each member must be known.
class Fields {
 public:
  Fields(const json& object, std::string where, std::initializer_list<const char*> known)
      : object_(object), where_(std::move(where)) {
    if (!object.is_object()) bad_plan(where_ + " is not an object");
    for (const auto& item : object.items()) {
      if (std::find(known.begin(), known.end(), item.key()) == known.end())
        bad_plan(where_ + " has an unknown member " + leat::detail::quoted(item.key()));
    }
  }

  const json& at(const char* name) const {
    if (!object_.contains(name)) bad_plan(where_ + " has no member " + leat::detail::quoted(name));
    return object_[name];
  }
  bool has(const char* name) const { return object_.contains(name); }
  std::uint32_t number(const char* name, std::uint32_t most = 0xffff'ffff) const {
    return number_of(at(name), where_ + "." + name, most);
  }
  std::string text(const char* name) const {
    if (!at(name).is_string()) bad_plan(where_ + "." + name + " is not a text");
    return at(name).get<std::string>();
  }
  const json& list(const char* name, std::size_t most) const {
    if (!at(name).is_array() || at(name).size() > most)
      bad_plan(where_ + "." + name + " is not a list of at most " + std::to_string(most));
    return at(name);
  }
  std::vector<std::uint32_t> numbers(const char* name, std::size_t most) const {
    std::vector<std::uint32_t> values;
    for (const json& value : list(name, most))
      values.push_back(number_of(value, where_ + "." + name, 0xffff'ffff));
    return values;
  }
  template <typename Value>
  Value one_of(const char* name, const std::map<std::string, Value>& values) const {
    const auto found = values.find(text(name));
    if (found == values.end())
      bad_plan(where_ + "." + name + " " + leat::detail::quoted(text(name)) + " is not known");
    return found->second;
  }

 private:
  static std::uint32_t number_of(const json& value, const std::string& where, std::uint32_t most) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() == 0 ||
        value.get<std::uint64_t>() > most)
      bad_plan(where + " is not a number from 1 to " + std::to_string(most));
    return value.get<std::uint32_t>();
  }

  const json& object_;
  const std::string where_;
};

SessionSecret parse_session(const json& object, const std::string& where) {
  const Fields fields(object, where,
                      {"id", "kind", "algorithm", "streams", "members", "sender", "receivers"});
  const std::map<std::string, SessionKind> kinds{
      {"pair", SessionKind::kPair}, {"group", SessionKind::kGroup}, {"log", SessionKind::kLog}};
  const std::map<std::string, std::uint8_t> algorithms{
      {"hmac-sha256", 1}, {"hmac-sha384", 2}, {"hmac-sha512", 3}, {"aes256-gmac", 4}};
  SessionSecret session;
  session.id = fields.number("id");
  session.kind = fields.one_of("kind", kinds);
  session.algorithm = fields.one_of("algorithm", algorithms);
  if (fields.has("streams"))
    session.streams = static_cast<std::uint8_t>(fields.number("streams", 16));
  if (session.kind == SessionKind::kPair) {
    std::vector<std::uint32_t> members = fields.numbers("members", 2);
    if (members.size() != 2) bad_plan(where + ".members must name two devices");
    std::sort(members.begin(), members.end());
    session.sender = members[0];
    session.receivers = {members[1]};
  } else {
    session.sender = fields.number("sender");
    if (session.kind == SessionKind::kGroup)
      session.receivers = fields.numbers("receivers", kMaxMembers);
    std::sort(session.receivers.begin(), session.receivers.end());
  }
  return session;
}

bool concerns(const SessionSecret& session, std::uint32_t device) {
  return session.sender == device || std::find(session.receivers.begin(), session.receivers.end(),
                                               device) != session.receivers.end();
}

}  // namespace

Plan parse_plan(std::string_view text, const std::string& name) {
  const json document = json::parse(text, nullptr, false);
  if (document.is_discarded()) bad_plan(name + " is not JSON");
  const Fields fields(document, name, {"devices", "sessions", "kernel"});
  Plan plan;
  for (const json& object : fields.list("devices", kMaxMembers)) {
    const Fields device(object, name + ".devices", {"device", "address"});
    plan.devices.push_back({device.number("device"), device.text("address")});
  }
  for (const json& object : fields.list("sessions", kMaxSessions))
    plan.sessions.push_back(parse_session(object, name + ".sessions"));
  const Fields kernel(fields.at("kernel"), name + ".kernel", {"id", "version", "program"});
  plan.image_id = kernel.number("id");
  plan.image_version = kernel.number("version");
  plan.image_program = kernel.text("program");

  const auto by_number = [](const auto& a, const auto& b) { return a.device < b.device; };
  const auto by_id = [](const auto& a, const auto& b) { return a.id < b.id; };
  std::sort(plan.devices.begin(), plan.devices.end(), by_number);
  std::sort(plan.sessions.begin(), plan.sessions.end(), by_id);
  const auto same_number = [](const auto& a, const auto& b) { return a.device == b.device; };
  const auto twin = std::adjacent_find(plan.devices.begin(), plan.devices.end(), same_number);
  if (twin != plan.devices.end())
    bad_plan("device " + std::to_string(twin->device) + " is named twice");
  for (const SessionSecret& session : plan.sessions) {
    std::vector<std::uint32_t> members = session.receivers;
    members.push_back(session.sender);
    for (const std::uint32_t member : members) {
      if (!std::binary_search(plan.devices.begin(), plan.devices.end(), PlannedDevice{member, {}},
                              by_number))
        bad_plan("session " + std::to_string(session.id) + " has the member " +
                 std::to_string(member) + ", which is not a device of " + name);
    }
  }
  make_secrets(plan, 1);  // what a device would refuse is an error of the plan
  return plan;
}

std::vector<Secrets> make_secrets(const Plan& plan, std::uint64_t epoch) {
  std::vector<SessionSecret> sessions = plan.sessions;
  for (SessionSecret& session : sessions) {
    session.key.resize(kSessionKeyBytes);
    fill_random(session.key);
  }
  std::vector<Secrets> all;
  for (const PlannedDevice& device : plan.devices) {
    Secrets secrets;
    secrets.device = device.device;
    secrets.epoch = epoch;
    secrets.reply_key.resize(kReplyKeyBytes);
    fill_random(secrets.reply_key);
    for (const SessionSecret& session : sessions) {
      if (concerns(session, device.device)) secrets.sessions.push_back(session);
    }
    parse_secrets(encode(secrets));
    all.push_back(std::move(secrets));
  }
  return all;
}

std::string_view to_string(SessionKind kind) noexcept {
  switch (kind) {
    case SessionKind::kPair:
      return "pair";
    case SessionKind::kGroup:
      return "group";
    case SessionKind::kLog:
      return "log";
  }
  return "unknown";
}

}  // namespace leat::trusted::remote
