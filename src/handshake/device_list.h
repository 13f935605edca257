// The `device` setting, taken apart: which devices may be used.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "verbs/table.h"

namespace leat::detail {

// "auto" allows every device. Otherwise a list with commas of
//   shm, ib, tcp        every device of that kind (verbs/table.h)
//   ib:NAME, NAME       devices whose names begin so; of ib:NAME:1, NAME:1 only that port
// `^` in front of the list allows what is not in it; `=` (after ^) compares whole names, so that
// mlx5_1 does not mean mlx5_10 too. What is not allowed is not used, tcp included: "shm" fails
// rather than to fall back. Pure value.
class DeviceList {
 public:
  // Throws kInvalidArgument that quotes what is wrong.
  explicit DeviceList(std::string_view text);

  // Whether some device of that kind may be used.
  bool allows(const DeviceRow& kind) const;
  // Whether this one may: "shm", "tcp", "ib:mlx5_0", "ib:mlx5_0:1". A device whose port is not told
  // matches every port.
  bool allows(std::string_view device) const;
  // Whether every device that may be used shares memory with its peer.
  bool shares_memory() const;
  // Whether it names devices, and not only kinds; and whether ports of theirs.
  bool names_devices() const;
  bool names_ports() const;
  // The entries that name none of these devices ("ib:mlx5_0"), with commas; empty if there are
  // none.
  std::string missing(const std::vector<std::string>& present) const;
  // Whether some device may be used if these are those that have names.
  bool leaves_any(const std::vector<std::string>& present) const;
  // As the user wrote it.
  const std::string& text() const { return text_; }

 private:
  struct Entry {
    const DeviceRow* kind = nullptr;  // null: any whose devices have names
    std::string name;                 // empty: every one
    std::string port;                 // empty: every one
  };

  static Entry parse_entry(std::string_view entry, std::string_view text);
  static bool is_of(const Entry& entry, const DeviceRow& kind);
  bool matches(const Entry& entry, std::string_view device) const;

  std::string text_;
  bool any_ = false;
  bool excluded_ = false;
  bool exact_ = false;
  std::vector<Entry> entries_;
};

}  // namespace leat::detail
