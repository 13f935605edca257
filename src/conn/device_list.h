// The `device` setting, taken apart: which devices may be used.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace leat::detail {

// In the order in which they are tried.
enum class DeviceKind : unsigned char { kShm, kIb, kTcp };
inline constexpr unsigned kDeviceKindCount = 3;

const char* to_string(DeviceKind kind);  // "shm", "ib", "tcp"

// "auto" allows every device. Otherwise a list with commas of
//   shm, tcp            these
//   ib                  every verbs device
//   ib:NAME, NAME       verbs devices whose names begin so; of ib:NAME:1, NAME:1 only that port
// `^` in front of the list allows what is not in it; `=` (after ^) compares whole names, so that
// mlx5_1 does not mean mlx5_10 too. What is not allowed is not used, tcp included: "shm" fails
// rather than to fall back. Pure value.
class DeviceList {
 public:
  // Throws kInvalidArgument that quotes what is wrong.
  explicit DeviceList(std::string_view text);

  // Whether some device of that kind may be used.
  bool allows(DeviceKind kind) const;
  // Whether this one may: "shm", "tcp", "ib:mlx5_0", "ib:mlx5_0:1". A device whose port is not told
  // matches every port.
  bool allows(std::string_view device) const;
  // As the user wrote it.
  const std::string& text() const { return text_; }

 private:
  struct Entry {
    DeviceKind kind = DeviceKind::kTcp;
    std::string name;  // of a verbs device; empty: every one
    std::string port;  // empty: every one
  };

  static Entry parse_entry(std::string_view entry, std::string_view text);
  bool matches(const Entry& entry, std::string_view name, std::string_view port) const;

  std::string text_;
  bool any_ = false;
  bool excluded_ = false;
  bool exact_ = false;
  std::vector<Entry> entries_;
};

}  // namespace leat::detail
