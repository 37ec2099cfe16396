#include "files/npy.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "attention/error.h"
#include "files/atomic_file.h"

namespace flashbench {

namespace {

// The format: numpy.lib.format, https://numpy.org/neps/nep-0001-npy-format.html
static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kVersionBytes = 2;
constexpr size_t kAlignment = 64;          // of the data in files that we write
constexpr size_t kMaxHeaderBytes = 65536;  // far above what a plain array needs

struct TypeName {
  NpyArray::Type type;
  std::string_view descr, name;
  int64_t size;
};
constexpr std::array kTypes{TypeName{NpyArray::Type::float32, "<f4", "float32", 4},
                            TypeName{NpyArray::Type::float16, "<f2", "float16", 2},
                            TypeName{NpyArray::Type::uint16, "<u2", "uint16", 2},
                            TypeName{NpyArray::Type::int32, "<i4", "int32", 4},
                            TypeName{NpyArray::Type::uint8, "|u1", "uint8", 1}};

const TypeName& npy_type_name(NpyArray::Type type) {
  return kTypes[static_cast<size_t>(type)];
}

// The dictionary in the header.
struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

// Parses the Python literal in a header: a dictionary with the keys descr (a string), fortran_order
// (a bool) and shape (a tuple of ints), in any order and spacing.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& file) : rest_(text), file_(file) {}

  Header parse() {
    Header header;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        set(header.descr, key, descr());
      } else if (key == "fortran_order") {
        set(header.fortran_order, key, boolean());
      } else if (key == "shape") {
        set(header.shape, key, tuple());
      } else {
        fail(fmt::format("unknown key '{}'", key));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (!rest_.empty()) fail("text after the dictionary");
    if (!header.descr || !header.fortran_order || !header.shape) {
      fail("expected the keys 'descr', 'fortran_order' and 'shape'");
    }
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw BadInput(fmt::format("{}: not a valid .npy header: {}", file_, what));
  }

  template <typename T>
  void set(std::optional<T>& target, const std::string& key, T value) {
    if (target) fail(fmt::format("the key '{}' appears twice", key));
    target = std::move(value);
  }

  void skip_space() {
    const size_t end = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end);
  }

  bool accept(char c) {
    skip_space();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (accept(c)) return;
    fail(rest_.empty() ? fmt::format("expected '{}', found the end", c)
                       : fmt::format("expected '{}', found '{}'", c, rest_.front()));
  }

  std::string string() {
    skip_space();
    const char quote = rest_.empty() ? '\0' : rest_.front();
    if (quote != '\'' && quote != '"') fail("expected a string");
    const size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) fail("a string that does not end");
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  // A structured dtype is a list instead of a string.
  std::string descr() {
    if (accept('[')) {
      throw BadInput(
          fmt::format("{}: expected one float32, float16 or uint16 per element, found a "
                      "structured dtype",
                      file_));
    }
    return string();
  }

  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(std::strlen(word));
      return value;
    }
    fail("expected True or False");
  }

  std::vector<int64_t> tuple() {
    std::vector<int64_t> values;
    expect('(');
    while (!accept(')')) {
      values.push_back(length());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

  int64_t length() {
    skip_space();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error == std::errc::result_out_of_range) fail("a length that is too large");
    if (error != std::errc()) fail("expected a length");
    if (value < 0) fail(fmt::format("a negative length, {}", value));
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }

  std::string_view rest_;
  const std::string& file_;
};

NpyArray::Type parse_type(const std::string& descr, const std::string& file) {
  for (const TypeName& known : kTypes) {
    if (descr == known.descr) return known.type;
  }
  std::string_view hint;
  if (descr.starts_with('>')) hint = "; it is big endian: save array.astype('<f4')";
  if (descr.ends_with("V2")) hint = "; if these are bf16, save array.view('uint16')";
  throw BadInput(fmt::format(
      "{}: expected dtype '<f4' (float32), '<f2' (float16), '<u2' (bits of bf16) or '<i4' (int32), "
      "found '{}'{}",
      file, descr, hint));
}

// The size of the data in bytes; empty if it does not fit 64 bits.
std::optional<int64_t> data_bytes(const std::vector<int64_t>& shape, int64_t element_size) {
  int64_t bytes = element_size;
  for (const int64_t length : shape) {
    if (__builtin_mul_overflow(bytes, length, &bytes)) return std::nullopt;
  }
  return bytes;
}

// Reads a file from front to back, never past its end.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : name_(path.string()) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) {
      throw FileError(fmt::format("{}: cannot read: {}", name_,
                                  error ? error.message() : std::strerror(ENOENT)));
    }
    if (!std::filesystem::is_regular_file(status)) {
      throw FileError(name_ + ": cannot read: not a regular file");
    }
    stream_.open(path, std::ios::binary);
    left_ = std::filesystem::file_size(path, error);
    if (!stream_ || error) {
      throw FileError(fmt::format("{}: cannot read: {}", name_, std::strerror(errno)));
    }
  }

  const std::string& name() const { return name_; }
  size_t left() const { return left_; }

  void read(void* to, size_t bytes, std::string_view what) {
    if (bytes > left_) {
      throw BadInput(fmt::format("{}: not a .npy file: it ends within its {}", name_, what));
    }
    stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
    if (!stream_) throw FileError(fmt::format("{}: cannot read its {}", name_, what));
    left_ -= bytes;
  }

 private:
  std::string name_;
  std::ifstream stream_;
  size_t left_ = 0;
};

std::string read_header_text(Reader& reader) {
  std::array<char, kMagic.size() + kVersionBytes> start;
  reader.read(start.data(), start.size(), "first bytes");
  if (std::string_view(start.data(), kMagic.size()) != kMagic) {
    throw BadInput(reader.name() + ": not a .npy file: it does not start with \\x93NUMPY");
  }
  const int major = static_cast<unsigned char>(start[kMagic.size()]);
  const int minor = static_cast<unsigned char>(start[kMagic.size() + 1]);
  if (major < 1 || major > 3 || minor != 0) {
    throw BadInput(fmt::format("{}: expected .npy format version 1.0, 2.0 or 3.0, found {}.{}",
                               reader.name(), major, minor));
  }
  uint32_t length = 0;  // 16 bits in version 1.0, 32 later; little endian
  reader.read(&length, major == 1 ? 2 : 4, "header length");
  if (length > kMaxHeaderBytes) {
    throw BadInput(fmt::format("{}: not a valid .npy header: {} bytes long, expected at most {}",
                               reader.name(), length, kMaxHeaderBytes));
  }
  std::string text(length, '\0');
  reader.read(text.data(), text.size(), "header");
  return text;
}

std::string header_text(NpyArray::Type type, std::span<const int64_t> shape) {
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                  npy_type_name(type).descr, fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  const size_t before = kMagic.size() + kVersionBytes + sizeof(uint16_t);
  const size_t total = (before + text.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  text.resize(total - before - 1, ' ');
  return text + '\n';
}

}  // namespace

NpyArray::Type npy_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return NpyArray::Type::float32;
    case Dtype::fp16:
      return NpyArray::Type::float16;
    case Dtype::bf16:
      return NpyArray::Type::uint16;
    case Dtype::e4m3:
      return NpyArray::Type::uint8;
  }
  return NpyArray::Type::float32;
}

std::string_view name(NpyArray::Type type) {
  return npy_type_name(type).name;
}

std::optional<Dtype> dtype_of(NpyArray::Type type) {
  switch (type) {
    case NpyArray::Type::float32:
      return Dtype::fp32;
    case NpyArray::Type::float16:
      return Dtype::fp16;
    case NpyArray::Type::uint16:
      return Dtype::bf16;
    case NpyArray::Type::int32:
    case NpyArray::Type::uint8:
      break;
  }
  return std::nullopt;
}

NpyArray read_npy(const std::filesystem::path& path) {
  Reader reader(path);
  const Header header = HeaderParser(read_header_text(reader), reader.name()).parse();
  if (*header.fortran_order) {
    throw BadInput(reader.name() +
                   ": expected C order, found Fortran order: save numpy.ascontiguousarray(array)");
  }

  NpyArray array;
  array.type = parse_type(*header.descr, reader.name());
  array.shape = *header.shape;
  const auto bytes = data_bytes(array.shape, npy_type_name(array.type).size);
  if (!bytes || static_cast<size_t>(*bytes) != reader.left()) {
    throw BadInput(fmt::format("{}: expected {} bytes of data for shape ({}), found {}",
                               reader.name(), bytes ? fmt::to_string(*bytes) : "over 2^63",
                               fmt::join(array.shape, ", "), reader.left()));
  }
  array.data.resize(reader.left());
  reader.read(array.data.data(), array.data.size(), "data");
  return array;
}

void write_npy(const std::filesystem::path& path, NpyArray::Type type,
               std::span<const int64_t> shape, const void* data) {
  const std::string header = header_text(type, shape);
  const auto bytes = data_bytes({shape.begin(), shape.end()}, npy_type_name(type).size);
  if (!bytes)
    throw BadInput(
        fmt::format("{}: shape ({}) is too large", path.string(), fmt::join(shape, ", ")));

  const auto length = static_cast<uint16_t>(header.size());
  std::string content(kMagic);
  content += {'\x01', '\x00', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  content += header;
  content.append(static_cast<const char*>(data), static_cast<size_t>(*bytes));
  write_file_atomically(path, content);
}

}  // namespace flashbench
