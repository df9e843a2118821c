/** The element types of matrices: read as a float or a double, and written rounded to nearest even. */
#pragma once

#include <cstdint>
#include <cstring>

namespace emulator {

enum ElementType : int { f32Type = 0, f64Type = 1, f16Type = 2, bf16Type = 14 };

inline bool isElementType(int type) {
  return type == f32Type || type == f64Type || type == f16Type || type == bf16Type;
}

inline uint64_t bytesOf(int type) { return type == f64Type ? 8 : type == f32Type ? 4 : 2; }

inline uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float floatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint16_t toBf16(float value) {
  const uint32_t bits = bitsOf(value);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float fromBf16(uint16_t bits) { return floatOf(static_cast<uint32_t>(bits) << 16); }

inline float fromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  if (exponent == 31) return floatOf(sign | 0x7f800000 | fraction << 13);
  if (exponent != 0) return floatOf(sign | (exponent + 112) << 23 | fraction << 13);
  // Subnormal: a multiple of 2⁻²⁴.
  const float small = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -small : small;
}

inline uint16_t toF16(float value) {
  const uint32_t bits = bitsOf(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t size = bits & 0x7fffffff;
  if (size > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (size >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (size < 0x38800000) {
    // Adding a number whose last bit is 2⁻²⁴ rounds to a multiple of that.
    return static_cast<uint16_t>(sign | (bitsOf(floatOf(size) + 0.5f) - bitsOf(0.5f)));
  }
  return static_cast<uint16_t>(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
}

/** Ten bits of fraction, as in a tensor core; ties round away from zero. */
inline float roundToTf32(float value) {
  const uint32_t bits = bitsOf(value);
  return (bits & 0x7f800000) == 0x7f800000 ? value : floatOf((bits + 0x1000) & ~0x1fffu);
}

template <class Number>
Number readElement(const void* matrix, int type, int64_t index) {
  switch (type) {
    case f64Type: return static_cast<Number>(static_cast<const double*>(matrix)[index]);
    case f32Type: return static_cast<Number>(static_cast<const float*>(matrix)[index]);
    case f16Type: return static_cast<Number>(fromF16(static_cast<const uint16_t*>(matrix)[index]));
    default: return static_cast<Number>(fromBf16(static_cast<const uint16_t*>(matrix)[index]));
  }
}

template <class Number>
void writeElement(void* matrix, int type, int64_t index, Number value) {
  switch (type) {
    case f64Type: static_cast<double*>(matrix)[index] = static_cast<double>(value); return;
    case f32Type: static_cast<float*>(matrix)[index] = static_cast<float>(value); return;
    case f16Type: static_cast<uint16_t*>(matrix)[index] = toF16(static_cast<float>(value)); return;
    default: static_cast<uint16_t*>(matrix)[index] = toBf16(static_cast<float>(value)); return;
  }
}

}  // namespace emulator
