"""Writes float8.json: the 8-bit floats of the OCP standard, from their definition in exact fractions. PyTorch 1.13 does not have them.

`values`: the numbers of all 256 bytes. `narrowed`: f32 bits, and the byte that each is rounded to: the nearest number, ties to an even byte.
"""

import json
import os
import struct
from fractions import Fraction

FORMATS = {"f8e4m3": (4, 3, 7), "f8e5m2": (5, 2, 15)}


def value_of(byte, exponent_bits, mantissa_bits, bias):
    """A fraction, or the name of what is no number."""
    sign = -1 if byte & 0x80 else 1
    exponent = (byte & 0x7F) >> mantissa_bits
    mantissa = byte & ((1 << mantissa_bits) - 1)
    if exponent == (1 << exponent_bits) - 1:
        if exponent_bits == 5:
            return "nan" if mantissa else ("inf" if sign > 0 else "-inf")
        if mantissa == 7:
            return "nan"
    if exponent == 0:
        return sign * Fraction(mantissa, 2**mantissa_bits) * Fraction(2) ** (1 - bias)
    return sign * (1 + Fraction(mantissa, 2**mantissa_bits)) * Fraction(2) ** (exponent - bias)


def f32_bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def f32_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def narrow(bits, magnitudes, infinity):
    """`magnitudes`: the finite ones by byte, with the next one that the format would have, which stands for what is too large."""
    sign = bits >> 31 << 7
    number = f32_of(bits & 0x7FFFFFFF)
    if number != number:
        return sign | 0x7F
    if number == float("inf"):
        return sign | infinity
    exact = Fraction(number)
    byte = min(range(len(magnitudes)), key=lambda index: (abs(magnitudes[index] - exact), index % 2))
    return sign | (infinity if byte == len(magnitudes) - 1 or exact > magnitudes[-1] else byte)


result = {}
for name, (exponent_bits, mantissa_bits, bias) in FORMATS.items():
    values = [value_of(byte, exponent_bits, mantissa_bits, bias) for byte in range(256)]
    infinity = 0x7C if exponent_bits == 5 else 0x7F
    finite = [value for value in values[:128] if isinstance(value, Fraction)]
    magnitudes = finite + [2 * finite[-1] - finite[-2]]
    chosen = {0, 1, 0x7F800000, 0x7F800001, 0x7FC00000, f32_bits(1e30), 0x7F7FFFFF}
    for low, high in zip(magnitudes, magnitudes[1:]):
        middle = f32_bits(float((low + high) / 2))
        chosen |= {f32_bits(float(low)), middle - 1, middle, middle + 1}
    pairs = []
    for index, bits in enumerate(sorted(chosen)):
        signed = bits | (index % 3 == 0) << 31
        pairs.append([signed, narrow(signed, magnitudes, infinity)])
    result[name] = {
        "values": ["-0" if byte == 128 else v if isinstance(v, str) else float(v) for byte, v in enumerate(values)],
        "narrowed": pairs,
    }

with open(os.path.join(os.path.dirname(__file__), "float8.json"), "w") as file:
    json.dump(result, file, separators=(",", ":"))
    file.write("\n")
