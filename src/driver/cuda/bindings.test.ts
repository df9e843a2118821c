/** The signatures equal those of NVIDIA's headers. Skipped, with a message, if no toolkit is installed. */

import assert from "node:assert/strict";
import test from "node:test";
import { findFalseClaims, type HeaderClaim, whyNoHeader } from "../../../test/support/cuda-headers.js";
import {
  cublasLtFunctions,
  cudaFunctions,
  listParameters,
  nvrtcFunctions,
  nvtxFunctions,
  resultType,
  type Signatures,
  splitParameter,
} from "./bindings.js";

const tables = {
  "cuda.h": cudaFunctions,
  "nvrtc.h": nvrtcFunctions,
  "cublasLt.h": cublasLtFunctions,
  "nvtx3/nvToolsExtMem.h": nvtxFunctions,
};

/**
 * `At<F, 2>` is the type of a function's third parameter. `Is_u32<T>` is true if a value of the table's type u32 may be
 * passed for it. A device address is an `unsigned long long` in C++, a size a `size_t`: the two types differ.
 */
const prelude = `
struct Nothing {};
template <typename F> struct Prototype;
template <typename R, typename... P> struct Prototype<R(P...)> {
  using Result = R;
  static constexpr std::size_t count = sizeof...(P);
};
template <std::size_t I, typename F> struct Parameter { using Type = Nothing; };
template <typename R, typename T, typename... P> struct Parameter<0, R(T, P...)> { using Type = T; };
template <std::size_t I, typename R, typename T, typename... P>
struct Parameter<I, R(T, P...)> : Parameter<I - 1, R(P...)> {};
template <typename F, std::size_t I> using At = typename Parameter<I, F>::Type;
template <typename T, typename... Types> constexpr bool isOne = (std::is_same_v<T, Types> || ...);
template <typename T> constexpr bool isEnum = std::is_enum_v<T> && sizeof(T) == 4;
template <typename T> constexpr bool Is_u8 = isOne<T, unsigned char>;
template <typename T> constexpr bool Is_i32 = isOne<T, int> || isEnum<T>;
template <typename T> constexpr bool Is_u32 = isOne<T, unsigned>;
template <typename T> constexpr bool Is_i64 = isOne<T, long, long long>;
template <typename T> constexpr bool Is_u64 = isOne<T, unsigned long, unsigned long long>;
template <typename T> constexpr bool Is_f32 = isOne<T, float>;
template <typename T> constexpr bool Is_f64 = isOne<T, double>;
template <typename T> constexpr bool Is_text = isOne<T, const char *>;
template <typename T> constexpr bool Is_address = std::is_pointer_v<T> || isOne<T, unsigned long long>;
template <typename T> constexpr bool Is_status = isEnum<T>;
template <typename T> constexpr bool Is_nothing = std::is_void_v<T>;
`;

function claimsOf(functions: Signatures): HeaderClaim[] {
  return Object.entries(functions).flatMap(([name, signature]) => {
    const prototype = `decltype(${name})`;
    const parameters = listParameters(signature);
    return [
      {
        holds: `Prototype<${prototype}>::count == ${parameters.length}`,
        otherwise: `${name} does not take ${parameters.length} parameters`,
      },
      {
        holds: `Is_${resultType(signature)}<Prototype<${prototype}>::Result>`,
        otherwise: `${name} does not return ${resultType(signature)}`,
      },
      ...parameters.map((parameter, index) => ({
        holds: `Is_${splitParameter(parameter).type}<At<${prototype}, ${index}>>`,
        otherwise: `${name}: parameter ${index} is no ${parameter}`,
      })),
    ];
  });
}

for (const [header, functions] of Object.entries<Signatures>(tables)) {
  test(`every signature equals that of ${header}`, { skip: whyNoHeader(header) ?? false }, () => {
    assert.deepEqual(findFalseClaims({ header, prelude, claims: claimsOf(functions) }), []);
  });
}

const injected = {
  "a parameter too few": { cuMemUnmap: ["address range"] },
  "a parameter too many": { cuMemUnmap: ["address range", "u64 size", "u64 flags"] },
  "a size with 32 bits": { cuMemUnmap: ["address range", "u32 size"] },
  "a size and an address swapped": { cuMemUnmap: ["u64 size", "address range"] },
  "a byte as a number of 32 bits": {
    cuMemsetD8Async: ["address target", "u32 value", "u64 size", "address stream"],
  },
  "a sign that is not there": { cuInit: ["i32 flags"] },
  "a text for another address": { cuMemFreeHost: ["text memory"] },
  "a text that is returned": { cuInit: { takes: ["u32 flags"], returns: "text" } },
  "a function that does not exist": { cuMemUnmapAll: [] },
} as const satisfies Readonly<Record<string, Signatures>>;

/** The compiler's errors for all injected faults, compiled once, at the first use. */
let problems: readonly string[] | undefined;

for (const [fault, functions] of Object.entries<Signatures>(injected)) {
  test(`red proof: the check detects ${fault}`, { skip: whyNoHeader("cuda.h") ?? false }, () => {
    const all = Object.values<Signatures>(injected).flatMap(claimsOf);
    problems ??= findFalseClaims({ header: "cuda.h", prelude, claims: all });
    const name = Object.keys(functions)[0] as string;
    // Several faults are in claims about one function.
    const own = claimsOf(functions).map(({ otherwise }) => otherwise);
    const isUnknown = !(name in cudaFunctions);
    const found = problems.filter((problem) => (isUnknown ? problem.includes(name) : own.includes(problem)));
    assert.notDeepEqual(found, []);
  });
}
