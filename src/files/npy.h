// NumPy's .npy files (format versions 1.0 to 3.0): arrays of fp32, fp16 or uint16 (bf16 bits),
// of int32 (FlashAttention's cu_seqlens), and of uint8 (e4m3 bits).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "attention/problem.h"

namespace flashbench {

struct NpyArray {
  enum class Type { float32, float16, uint16, int32, uint8 };
  Type type = Type::float32;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;  // C order, little endian
};

// The .npy type that stores a dtype (bf16 and e4m3 as their bits), and the inverse.
NpyArray::Type npy_type(Dtype);
std::optional<Dtype> dtype_of(NpyArray::Type);  // none of int32 and uint8
std::string_view name(NpyArray::Type);          // as NumPy has it

// Throws FileError if the file cannot be read. Throws BadInput (with the file's name, what was
// expected and what was found) if it is not a supported array: other dtypes, big endian, Fortran
// order, object arrays, a size that does not match the shape.
NpyArray read_npy(const std::filesystem::path& path);

// Writes a temporary file in the same folder, syncs and renames it. Throws FileError.
void write_npy(const std::filesystem::path& path, NpyArray::Type type,
               std::span<const int64_t> shape, const void* data);

}  // namespace flashbench
