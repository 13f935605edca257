#include "trusted/a2m/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/system_error.h"
#include "base/wire.h"
#include "leat/error.h"
#include "trusted/a2m/entry.h"

namespace leat::trusted::detail {
namespace {

constexpr std::uint64_t kMagic = 0x676f'6c6d'3261'656c;  // "lea2mlog" in memory
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kFixedBytes = 64;  // then their SHA-256, then zeros to kTailOffset

// Marks and words of files are the machine's own numbers.
static_assert(std::endian::native == std::endian::little);

using Header = std::array<std::byte, kFileHeaderBytes>;

Header header_of(const LogFile& file) {
  Header header{};
  leat::detail::WireWriter writer(header);
  writer.number(kMagic);
  writer.number(kVersion);
  writer.number(file.session.id);
  writer.number(file.device);
  writer.number(static_cast<std::uint8_t>(file.session.algorithm));
  writer.number(static_cast<std::uint8_t>(file.session.role == Role::kLog));
  writer.number(static_cast<std::uint8_t>(file.digests));
  writer.number(std::uint8_t{0});
  writer.number(file.epoch);
  writer.number(file.payload_bytes);
  writer.number(file.slot_bytes);
  Digest digest;
  sha256(std::span(header).first<kFixedBytes>(), digest);
  std::ranges::copy(digest, header.begin() + kFixedBytes);
  // No checkpoint yet: 0 and its inverse.
  std::fill_n(header.begin() + kCheckpointCopyOffset, 8, std::byte{0xff});
  return header;
}

Error foreign(const std::string& path, const std::string& why, const std::string& advice) {
  return {ErrorCode::kInvalidArgument, path + " " + why, advice};
}

}  // namespace

std::string path_of_log(const std::string& folder, std::uint32_t session) {
  return folder + "/log-" + std::to_string(session) + ".a2m";
}

bool make_log_file(const std::string& path, const LogFile& file) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) return false;
  if (errno != ENOENT) throw leat::detail::system_error("stat " + path, errno);
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failed);
  if (failed) throw leat::detail::system_error("mkdir for " + path, failed.value());
  // Under another name until it is whole, so that no crash leaves half a header.
  const std::string temporary = path + "." + std::to_string(getpid());
  const Header header = header_of(file);
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                      S_IRUSR | S_IWUSR);
  if (fd < 0) throw leat::detail::system_error("open " + temporary, errno);
  const bool whole = write(fd, header.data(), header.size()) == std::ssize(header);
  const int write_errno = whole ? 0 : errno;
  close(fd);
  if (!whole) throw leat::detail::system_error("write " + temporary, write_errno);
  if (rename(temporary.c_str(), path.c_str()) != 0)
    throw leat::detail::system_error("rename " + temporary, errno);
  return true;
}

void check_log_file(const std::string& path, std::span<const std::byte> header,
                    const LogFile& file) {
  const Header expected = header_of(file);
  if (header.size() == kFileHeaderBytes &&
      std::equal(expected.begin(), expected.begin() + kTailOffset, header.begin()))
    return;
  Digest digest;
  if (header.size() >= kFixedBytes) sha256(header.first(kFixedBytes), digest);
  leat::detail::WireReader reader(header);
  if (header.size() < kFileHeaderBytes || reader.number<std::uint64_t>() != kMagic ||
      !std::equal(digest.begin(), digest.end(), header.begin() + kFixedBytes))
    throw foreign(path, "is not a log file, or its header is damaged",
                  "Restore it, or move it away to begin a new log.");
  if (reader.number<std::uint32_t>() != kVersion)
    throw foreign(path, "was written by another version of leat", "Open it with that version.");
  const auto session = reader.number<std::uint32_t>();
  const auto device = reader.number<std::uint32_t>();
  reader.bytes(4);
  const auto epoch = reader.number<std::uint64_t>();
  if (session != file.session.id || device != file.device)
    throw foreign(path,
                  "is log " + std::to_string(session) + " of device " + std::to_string(device) +
                      ", not log " + std::to_string(file.session.id) + " of device " +
                      std::to_string(file.device),
                  "Name the folder of this one.");
  if (epoch != file.epoch)
    throw foreign(path,
                  "was attested in epoch " + std::to_string(epoch) + ", and the kernel is in " +
                      std::to_string(file.epoch),
                  "Only keys of its own epoch verify it: keep it as an archive, and begin a new "
                  "log in another folder.");
  throw foreign(path, "was made with other options or another algorithm",
                "Open it with max_context_bytes, digests and the session that it was made with.");
}

}  // namespace leat::trusted::detail
