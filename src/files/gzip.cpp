#include "files/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>

#include "attention/error.h"

namespace flashbench {

namespace {

constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr int kGzip = 16 + MAX_WBITS;  // zlib: 16 stands for gzip's header and checksum
constexpr size_t kOutputChunk = size_t{1} << 20;
constexpr size_t kMostInput = std::numeric_limits<uInt>::max();

// zlib's state of one member at a time.
class Inflater {
 public:
  explicit Inflater(std::string_view bytes) : left_(bytes) {
    if (inflateInit2(&stream_, kGzip) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  size_t input_left() const { return left_.size(); }
  void begin_next_member() { inflateReset(&stream_); }
  std::string_view message() const { return stream_.msg != nullptr ? stream_.msg : "damaged"; }

  // Appends at most `bytes` to the text, and returns zlib's code.
  int append(std::string& text, size_t bytes) {
    const size_t before = text.size(), given = std::min(left_.size(), kMostInput);
    text.resize(before + bytes);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(left_.data()));
    stream_.avail_in = static_cast<uInt>(given);
    stream_.next_out = reinterpret_cast<Bytef*>(text.data() + before);
    stream_.avail_out = static_cast<uInt>(bytes);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    left_.remove_prefix(given - stream_.avail_in);
    text.resize(before + bytes - stream_.avail_out);
    return code;
  }

 private:
  std::string_view left_;
  z_stream stream_{};
};

}  // namespace

bool is_gzip(std::string_view bytes) {
  return bytes.starts_with(kGzipMagic);
}

std::string gunzip(std::string_view bytes, size_t most_bytes, const std::string& source) {
  const auto fail = [&](std::string_view why) -> FileError {
    return FileError(fmt::format("{}: cannot decompress: {}", source, why));
  };
  Inflater inflater(bytes);
  std::string text;
  while (true) {
    const size_t room = std::min(kOutputChunk, most_bytes - text.size() + 1);
    const int code = inflater.append(text, room);
    if (code == Z_MEM_ERROR) throw std::bad_alloc();
    if (text.size() > most_bytes) throw fail(fmt::format("larger than {} bytes", most_bytes));
    if (code == Z_STREAM_END && inflater.input_left() == 0) return text;
    if (code == Z_STREAM_END) {
      inflater.begin_next_member();
    } else if (code == Z_BUF_ERROR) {
      throw fail("the file is cut off");
    } else if (code != Z_OK) {
      throw fail(inflater.message());
    }
  }
}

}  // namespace flashbench
