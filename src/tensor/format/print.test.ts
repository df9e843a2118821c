/** Tensors print as NumPy prints arrays, with JavaScript's words. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import { type FloatDtype, roundTo } from "./decimal.js";
import { describeTensor, formatElements } from "./print.js";

/** 0, 1, 2, … times a step. */
function count(length: number, step = 1): number[] {
  return Array.from({ length }, (_, index) => index * step);
}

function isFloat(dtype: Dtype): dtype is FloatDtype {
  return dtypes[dtype].kind === "float";
}

type Row = readonly [
  name: string,
  dtype: Dtype,
  shape: readonly number[],
  values: readonly (number | boolean)[],
  text: string | readonly string[],
];

/**
 * The output of NumPy 2.4 with nanstr "NaN", infstr "Infinity" and lower-case booleans. One difference: next to a NaN, NumPy
 * always leaves columns for an infinity; here only if there is one.
 */
const printed: readonly Row[] = [
  ["a matrix", "f32", [2, 2], [1, 2.5, 3, 4], ["[[1.  2.5]", " [3.  4. ]]"]],
  ["whole floats keep their point", "f32", [3], [1, 2, 3], "[1. 2. 3.]"],
  ["a negative sign takes a column", "f32", [3], [1, -2.5, 3], "[ 1.  -2.5  3. ]"],
  ["a negative zero", "f32", [3], [0, -0, 1], "[ 0. -0.  1.]"],
  ["zeros", "f32", [2, 2], [0, 0, 0, 0], ["[[0. 0.]", " [0. 0.]]"]],
  ["f32 tenths", "f32", [3], [0.1, 0.2, 0.7], "[0.1 0.2 0.7]"],
  ["f64 tenths", "f64", [3], [0.1, 0.2, 0.30000000000000004], "[0.1 0.2 0.3]"],
  [
    "f32 thirds have as many digits as f32 holds",
    "f32",
    [2],
    [0.3333333333333333, 0.6666666666666666],
    "[0.33333334 0.6666667 ]",
  ],
  [
    "f64 thirds are cut at eight",
    "f64",
    [3],
    [0.3333333333333333, 0.6666666666666666, 3.3333333333333335],
    "[0.33333333 0.66666667 3.33333333]",
  ],
  ["ties are rounded to even", "f64", [2], [0.001953125, 0.005859375], "[0.00195312 0.00585938]"],
  ["f16", "f16", [3], [0.1, 0.3333333333333333, 2.5], "[0.1    0.3333 2.5   ]"],
  ["f16 from a thousand on", "f16", [2], [1000, 1], "[1.e+03 1.e+00]"],
  ["f32 just written out", "f32", [2], [999999, 1000], "[999999.   1000.]"],
  ["f32 from a million on", "f32", [1], [1000000], "[1.e+06]"],
  ["f64 just written out", "f64", [2], [99999999, 100000], "[99999999.   100000.]"],
  ["f64 from a hundred million on", "f64", [1], [100000000], "[1.e+08]"],
  ["a ratio of a thousand", "f32", [2], [0.5, 500], "[  0.5 500. ]"],
  ["a ratio above a thousand", "f32", [2], [0.5, 501], "[5.00e-01 5.01e+02]"],
  ["the smallest f32 written out", "f32", [2], [0.0001, 0.01], "[0.0001 0.01  ]"],
  ["below the smallest", "f32", [2], [9e-5, 0.01], "[9.e-05 1.e-02]"],
  [
    "mixed magnitudes show exact digits",
    "f32",
    [3],
    [0.1, 1.2345678e-5, -3],
    "[ 1.0000000e-01  1.2345678e-05 -3.0000000e+00]",
  ],
  ["nine digits in f64", "f64", [2], [1234567885, 1], "[1.23456788e+09 1.00000000e+00]"],
  ["an exponent of three digits", "f64", [3], [1e-300, 1, -2.5e200], "[ 1.0e-300  1.0e+000 -2.5e+200]"],
  [
    "the range of f32",
    "f32",
    [2],
    [3.4028234663852886e38, 1.1754943508222875e-38],
    "[3.4028235e+38 1.1754944e-38]",
  ],
  [
    "a power of two, whose neighbours are at different distances",
    "f32",
    [2],
    [1.2379400392853803e27, 1],
    "[1.2379401e+27 1.0000000e+00]",
  ],
  ["the smallest f32", "f32", [1], [1.401298464324817e-45], "[1.e-45]"],
  ["zero among exponents", "f32", [2], [0, 1e-9], "[0.e+00 1.e-09]"],
  ["NaN among numbers", "f32", [3], [NaN, 1, 2], "[NaN  1.  2.]"],
  ["NaN alone", "f32", [1], [NaN], "[NaN]"],
  ["infinities", "f32", [3], [1.5, Infinity, -Infinity], "[      1.5  Infinity -Infinity]"],
  ["NaN and an infinity alone", "f32", [2], [NaN, Infinity], "[     NaN Infinity]"],
  ["NaN among long numbers", "f32", [3], [NaN, 0.12345678, -1], "[        NaN  0.12345678 -1.        ]"],
  ["an infinity among exponents", "f32", [3], [Infinity, 1e-20, -1.5], "[Infinity  1.0e-20 -1.5e+00]"],
  ["integers are aligned right", "i32", [2, 2], [1, -20, 300, 4], ["[[  1 -20]", " [300   4]]"]],
  ["the range of i32", "i32", [2], [-2147483648, 2147483647], "[-2147483648  2147483647]"],
  ["bytes", "u8", [2, 2], [0, 255, 7, 16], ["[[  0 255]", " [  7  16]]"]],
  ["booleans", "bool", [2, 2], [true, false, false, true], ["[[ true false]", " [false  true]]"]],
  ["only true", "bool", [2], [true, true], "[ true  true]"],
  ["no axes, f32", "f32", [], [0.1], "0.1"],
  ["no axes, a whole number", "f32", [], [3], "3.0"],
  ["no axes, f64 is not cut", "f64", [], [0.3333333333333333], "0.3333333333333333"],
  ["no axes, large f32", "f32", [], [2500000], "2.5e+06"],
  ["no axes, large f64", "f64", [], [1000000000000000.0], "1000000000000000.0"],
  ["no axes, too large f64", "f64", [], [1e16], "1e+16"],
  ["no axes, small", "f32", [], [-1.5e-5], "-1.5e-05"],
  ["no axes, NaN", "f32", [], [NaN], "NaN"],
  ["no axes, an infinity", "f32", [], [-Infinity], "-Infinity"],
  ["no axes, i32", "i32", [], [-7], "-7"],
  ["no axes, a boolean", "bool", [], [true], "true"],
  ["no axes, negative zero", "f64", [], [-0], "-0.0"],
  ["empty", "f32", [0], [], "[]"],
  ["empty along one axis", "f32", [0, 3], [], "[]"],
  [
    "a row that wraps",
    "f32",
    [40],
    count(40),
    [
      "[ 0.  1.  2.  3.  4.  5.  6.  7.  8.  9. 10. 11. 12. 13. 14. 15. 16. 17.",
      " 18. 19. 20. 21. 22. 23. 24. 25. 26. 27. 28. 29. 30. 31. 32. 33. 34. 35.",
      " 36. 37. 38. 39.]",
    ],
  ],
  [
    "a row that ends just at the width",
    "i32",
    [18],
    new Array(18).fill(123),
    "[123 123 123 123 123 123 123 123 123 123 123 123 123 123 123 123 123 123]",
  ],
  [
    "a row one column too long",
    "i32",
    [18],
    [...new Array(17).fill(123), 1234],
    ["[ 123  123  123  123  123  123  123  123  123  123  123  123  123  123", "  123  123  123 1234]"],
  ],
  [
    "wrapped words lose the blanks at a line's end",
    "f32",
    [2, 20],
    Array.from({ length: 40 }, (_, index) => (index % 2 ? 2 : 0.125)),
    [
      "[[0.125 2.    0.125 2.    0.125 2.    0.125 2.    0.125 2.    0.125 2.",
      "  0.125 2.    0.125 2.    0.125 2.    0.125 2.   ]",
      " [0.125 2.    0.125 2.    0.125 2.    0.125 2.    0.125 2.    0.125 2.",
      "  0.125 2.    0.125 2.    0.125 2.    0.125 2.   ]]",
    ],
  ],
  [
    "three axes",
    "f32",
    [2, 3, 2],
    count(12, 0.5),
    ["[[[0.  0.5]", "  [1.  1.5]", "  [2.  2.5]]", "", " [[3.  3.5]", "  [4.  4.5]", "  [5.  5.5]]]"],
  ],
  [
    "three axes of integers",
    "i32",
    [2, 3, 4],
    count(24),
    [
      "[[[ 0  1  2  3]",
      "  [ 4  5  6  7]",
      "  [ 8  9 10 11]]",
      "",
      " [[12 13 14 15]",
      "  [16 17 18 19]",
      "  [20 21 22 23]]]",
    ],
  ],
  [
    "four axes",
    "i32",
    [2, 2, 2, 2],
    count(16),
    [
      "[[[[ 0  1]",
      "   [ 2  3]]",
      "",
      "  [[ 4  5]",
      "   [ 6  7]]]",
      "",
      "",
      " [[[ 8  9]",
      "   [10 11]]",
      "",
      "  [[12 13]",
      "   [14 15]]]]",
    ],
  ],
  [
    "five axes",
    "u8",
    [2, 1, 2, 1, 2],
    count(8),
    ["[[[[[0 1]]", "", "   [[2 3]]]]", "", "", "", " [[[[4 5]]", "", "   [[6 7]]]]]"],
  ],
  ["above a thousand a row is summarised", "i32", [1001], count(1001), "[   0    1    2 ...  998  999 1000]"],
  [
    "a summarised matrix",
    "f32",
    [40, 50],
    count(2000, 0.5),
    [
      "[[0.000e+00 5.000e-01 1.000e+00 ... 2.350e+01 2.400e+01 2.450e+01]",
      " [2.500e+01 2.550e+01 2.600e+01 ... 4.850e+01 4.900e+01 4.950e+01]",
      " [5.000e+01 5.050e+01 5.100e+01 ... 7.350e+01 7.400e+01 7.450e+01]",
      " ...",
      " [9.250e+02 9.255e+02 9.260e+02 ... 9.485e+02 9.490e+02 9.495e+02]",
      " [9.500e+02 9.505e+02 9.510e+02 ... 9.735e+02 9.740e+02 9.745e+02]",
      " [9.750e+02 9.755e+02 9.760e+02 ... 9.985e+02 9.990e+02 9.995e+02]]",
    ],
  ],
  [
    "a short axis is whole in a summary",
    "i32",
    [300, 4],
    count(1200),
    [
      "[[   0    1    2    3]",
      " [   4    5    6    7]",
      " [   8    9   10   11]",
      " ...",
      " [1188 1189 1190 1191]",
      " [1192 1193 1194 1195]",
      " [1196 1197 1198 1199]]",
    ],
  ],
  [
    "a summary of three axes",
    "i32",
    [20, 20, 20],
    count(8000),
    [
      "[[[   0    1    2 ...   17   18   19]",
      "  [  20   21   22 ...   37   38   39]",
      "  [  40   41   42 ...   57   58   59]",
      "  ...",
      "  [ 340  341  342 ...  357  358  359]",
      "  [ 360  361  362 ...  377  378  379]",
      "  [ 380  381  382 ...  397  398  399]]",
      "",
      " [[ 400  401  402 ...  417  418  419]",
      "  [ 420  421  422 ...  437  438  439]",
      "  [ 440  441  442 ...  457  458  459]",
      "  ...",
      "  [ 740  741  742 ...  757  758  759]",
      "  [ 760  761  762 ...  777  778  779]",
      "  [ 780  781  782 ...  797  798  799]]",
      "",
      " [[ 800  801  802 ...  817  818  819]",
      "  [ 820  821  822 ...  837  838  839]",
      "  [ 840  841  842 ...  857  858  859]",
      "  ...",
      "  [1140 1141 1142 ... 1157 1158 1159]",
      "  [1160 1161 1162 ... 1177 1178 1179]",
      "  [1180 1181 1182 ... 1197 1198 1199]]",
      "",
      " ...",
      "",
      " [[6800 6801 6802 ... 6817 6818 6819]",
      "  [6820 6821 6822 ... 6837 6838 6839]",
      "  [6840 6841 6842 ... 6857 6858 6859]",
      "  ...",
      "  [7140 7141 7142 ... 7157 7158 7159]",
      "  [7160 7161 7162 ... 7177 7178 7179]",
      "  [7180 7181 7182 ... 7197 7198 7199]]",
      "",
      " [[7200 7201 7202 ... 7217 7218 7219]",
      "  [7220 7221 7222 ... 7237 7238 7239]",
      "  [7240 7241 7242 ... 7257 7258 7259]",
      "  ...",
      "  [7540 7541 7542 ... 7557 7558 7559]",
      "  [7560 7561 7562 ... 7577 7578 7579]",
      "  [7580 7581 7582 ... 7597 7598 7599]]",
      "",
      " [[7600 7601 7602 ... 7617 7618 7619]",
      "  [7620 7621 7622 ... 7637 7638 7639]",
      "  [7640 7641 7642 ... 7657 7658 7659]",
      "  ...",
      "  [7940 7941 7942 ... 7957 7958 7959]",
      "  [7960 7961 7962 ... 7977 7978 7979]",
      "  [7980 7981 7982 ... 7997 7998 7999]]]",
    ],
  ],
  [
    "a summary of four axes",
    "u8",
    [2, 7, 2, 40],
    count(1120).map((value) => value % 200),
    [
      "[[[[  0   1   2 ...  37  38  39]",
      "   [ 40  41  42 ...  77  78  79]]",
      "",
      "  [[ 80  81  82 ... 117 118 119]",
      "   [120 121 122 ... 157 158 159]]",
      "",
      "  [[160 161 162 ... 197 198 199]",
      "   [  0   1   2 ...  37  38  39]]",
      "",
      "  ...",
      "",
      "  [[120 121 122 ... 157 158 159]",
      "   [160 161 162 ... 197 198 199]]",
      "",
      "  [[  0   1   2 ...  37  38  39]",
      "   [ 40  41  42 ...  77  78  79]]",
      "",
      "  [[ 80  81  82 ... 117 118 119]",
      "   [120 121 122 ... 157 158 159]]]",
      "",
      "",
      " [[[160 161 162 ... 197 198 199]",
      "   [  0   1   2 ...  37  38  39]]",
      "",
      "  [[ 40  41  42 ...  77  78  79]",
      "   [ 80  81  82 ... 117 118 119]]",
      "",
      "  [[120 121 122 ... 157 158 159]",
      "   [160 161 162 ... 197 198 199]]",
      "",
      "  ...",
      "",
      "  [[ 80  81  82 ... 117 118 119]",
      "   [120 121 122 ... 157 158 159]]",
      "",
      "  [[160 161 162 ... 197 198 199]",
      "   [  0   1   2 ...  37  38  39]]",
      "",
      "  [[ 40  41  42 ...  77  78  79]",
      "   [ 80  81  82 ... 117 118 119]]]]",
    ],
  ],
  [
    "hidden elements do not widen a summary",
    "f64",
    [1006],
    [1, 2, 3, ...new Array(1000).fill(1e30), 4, 5, 6],
    "[1. 2. 3. ... 4. 5. 6.]",
  ],
];

describe("elements print as NumPy prints them", () => {
  for (const [name, dtype, shape, values, text] of printed) {
    it(name, () => {
      // The table has decimals; a tensor has them rounded to its dtype.
      const round = isFloat(dtype) ? roundTo[dtype] : Number;
      const rounded = values.map((value) => round(Number(value)));
      assert.equal(formatElements({ shape, dtype, values: rounded }), [text].flat().join("\n"));
    });
  }
});

it("bf16 prints the fewest digits that identify a value, and hundreds in positional notation", () => {
  const print = (...values: number[]) =>
    formatElements({ shape: [values.length], dtype: "bf16", values: values.map(roundTo.bf16) });
  assert.equal(print(0.1, 1 / 3, -2.5), "[ 0.1    0.334 -2.5  ]");
  assert.equal(print(1, 128, 996), "[  1. 128. 996.]");
  assert.equal(print(1000), "[1.e+03]");
});

it("zeros and ones of dtype bool print as booleans", () => {
  assert.equal(formatElements({ shape: [2], dtype: "bool", values: Uint8Array.of(1, 0) }), "[ true false]");
});

it("indented elements wrap at the same column, and later lines begin under the first bracket", () => {
  const text = formatElements({ shape: [40], dtype: "f32", values: count(40), indent: 7 });
  assert.equal(
    text,
    [
      "[ 0.  1.  2.  3.  4.  5.  6.  7.  8.  9. 10. 11. 12. 13. 14. 15.",
      "        16. 17. 18. 19. 20. 21. 22. 23. 24. 25. 26. 27. 28. 29. 30. 31.",
      "        32. 33. 34. 35. 36. 37. 38. 39.]",
    ].join("\n"),
  );
});

it("a wrong number of values is rejected", () => {
  assert.throws(
    () => formatElements({ shape: [2, 3], dtype: "f32", values: [1, 2] }),
    (error) =>
      error instanceof HoldfastError && /2 values .* shape \[2, 3\], which has 6/.test(error.message),
  );
});

it("a summary reads only the elements that it prints", () => {
  const read: number[] = [];
  const values = new Proxy(new Float32Array(10_000), {
    get(target, key) {
      if (typeof key === "string" && /^\d+$/.test(key)) read.push(Number(key));
      return Reflect.get(target, key, target);
    },
  });
  formatElements({ shape: [10_000], dtype: "f32", values });
  assert.deepEqual(read, [0, 1, 2, 9997, 9998, 9999]);
});

it("a tensor prints its elements, shape, dtype, device, and whether it requires a gradient", () => {
  const values = [1, 2.5, 3, 4];
  assert.equal(
    describeTensor({ shape: [2, 2], dtype: "f32", values, device: "cpu" }),
    "tensor([[1.  2.5]\n        [3.  4. ]], shape [2, 2], f32, cpu)",
  );
  assert.equal(
    describeTensor({ shape: [], dtype: "f64", values: [0.5], requiresGrad: true }),
    "tensor(0.5, shape [], f64, requires grad)",
  );
  assert.equal(describeTensor({ shape: [0, 3], dtype: "i32", values: [] }), "tensor([], shape [0, 3], i32)");
});

it("the facts after the elements get a line of their own if the last line would exceed 75 columns", () => {
  const tensor = { shape: [11], dtype: "i32", values: new Array(11).fill(123) } as const;
  const row = "tensor([123 123 123 123 123 123 123 123 123 123 123],";
  assert.equal(`${row} shape [11], i32, cpu)`.length, 75);
  assert.equal(describeTensor({ ...tensor, device: "cpu" }), `${row} shape [11], i32, cpu)`);
  assert.equal(describeTensor({ ...tensor, device: "cuda" }), `${row}\n       shape [11], i32, cuda)`);
});
