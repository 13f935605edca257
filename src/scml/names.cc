// The names of the enumerators, as files and programs spell them.
#include <string_view>

#include "leat/scml/model.h"
#include "leat/scml/parser.h"

namespace leat::scml {

std::string_view to_string(LayerKind kind) noexcept {
  switch (kind) {
    case LayerKind::kCnn:
      return "cnn";
    case LayerKind::kMaxPool:
      return "maxpool";
    case LayerKind::kAveragePool:
      return "averagepool";
    case LayerKind::kRelu:
      return "relu";
    case LayerKind::kFc:
      return "fc";
    case LayerKind::kLn:
      return "ln";
    case LayerKind::kAdd:
      return "add";
    case LayerKind::kConversion:
      return "conversion";
  }
  return "unknown";
}

std::string_view to_string(Protocol protocol) noexcept {
  switch (protocol) {
    case Protocol::kSs:
      return "ss";
    case Protocol::kBoolean:
      return "boolean";
    case Protocol::kGc:
      return "gc";
    case Protocol::kOt:
      return "ot";
    case Protocol::kHe:
      return "he";
    case Protocol::kConversion:
      return "conversion";
  }
  return "unknown";
}

std::string_view to_string(Profile profile) noexcept {
  switch (profile) {
    case Profile::kPiranha:
      return "piranha";
    case Profile::kSecureMlAby3:
      return "secureml-aby3";
    case Profile::kBest:
      return "best";
  }
  return "unknown";
}

std::string_view to_string(Pass pass) noexcept {
  switch (pass) {
    case Pass::kOffline:
      return "offline";
    case Pass::kForward:
      return "forward";
    case Pass::kBackward:
      return "backward";
  }
  return "unknown";
}

}  // namespace leat::scml
