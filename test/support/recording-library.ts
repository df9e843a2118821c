/**
 * C libraries that are generated from tables of signatures: each function records its arguments, byte for
 * byte, and returns a given status. They replace CUDA's libraries.
 */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import type { LibraryHandle } from "koffi";
import {
  cublasLtFunctions,
  cudaFunctions,
  type ForeignType,
  foreignTypes,
  listParameters,
  nvrtcFunctions,
  nvtxFunctions,
  resultType,
  type Signature,
  type Signatures,
  splitParameter,
} from "../../src/driver/cuda/bindings.js";
import { loadKoffi } from "../../src/driver/foreign-functions.js";

/** No function of CUDA takes a float, a double or a signed 64-bit number by value after many others: these do. */
export const probeFunctions = {
  probeOrder: ["f32 a", "u64 b", "f64 c", "i32 d", "i64 e", "u8 f", "u32 g", "address h", "f32 i"],
  probeFloats: "abcdefghijkl".split("").map((name) => `f32 ${name}` as const),
  probeDoubles: "abcdefghijkl".split("").map((name) => `f64 ${name}` as const),
  probeSmall: "abcdefghijkl".split("").map((name) => `u8 ${name}` as const),
  probeMixed: [
    ..."abcdefghi".split("").map((name) => `i64 ${name}` as const),
    "f32 j",
    "u8 k",
    "f64 l",
    "i32 m",
    "f32 n",
    "text o",
  ],
} as const satisfies Signatures;

export const recordedTables = {
  "libcuda.so.1": cudaFunctions,
  "libnvrtc.so.13": nvrtcFunctions,
  "libcublasLt.so.13": cublasLtFunctions,
  "libnvtx3interop.so.1": nvtxFunctions,
  "libprobe.so": probeFunctions,
} as const satisfies Readonly<Record<string, Signatures>>;

export type RecordedTable = keyof typeof recordedTables;

/** The result of every function that returns a number of 64 bits, or an address. */
export const returnedNumber = 0x12_3456_789a;

export interface RecordingLibraries {
  readonly folder: string;
  pathOf(name: RecordedTable): string;
  /** The argument bytes of the last call, one parameter after the other. */
  recordOf(name: RecordedTable): Uint8Array;
  /** From now on functions return this status, explain it, and report this version of the driver. */
  answer(name: RecordedTable, status: number, driverVersion?: number): void;
}

/** Compiles the libraries of the tables, or some of them, into a separate folder; undefined if there is no C compiler. */
export function compileRecordingLibraries({
  names = Object.keys(recordedTables) as RecordedTable[],
  without,
}: {
  readonly names?: readonly RecordedTable[];
  /** A function that is missing. */
  readonly without?: string;
} = {}): RecordingLibraries | undefined {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-recording-"));
  after(() => rmSync(folder, { recursive: true }));
  const pathOf = (name: RecordedTable) => join(folder, name);
  try {
    for (const name of names) {
      const table: Signatures = recordedTables[name];
      const source = join(folder, `${name}.c`);
      writeFileSync(source, sourceOf(Object.entries(table).filter(([symbol]) => symbol !== without)));
      const flags = ["-std=c11", "-O2", "-Wall", "-Werror", "-shared", "-fPIC"];
      execFileSync("cc", [...flags, source, "-o", join(folder, name)]);
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
  const loaded = new Map<string, LibraryHandle>();
  const load = (name: RecordedTable): LibraryHandle => {
    const library = loaded.get(name) ?? loadKoffi().load(pathOf(name));
    loaded.set(name, library);
    return library;
  };
  return {
    folder,
    pathOf,
    recordOf(name) {
      const size = Number(load(name).func("uint64_t recorded_size()")());
      const address = load(name).func("uint64_t recorded_bytes()")();
      return new Uint8Array(loadKoffi().view(address, size)).slice();
    },
    answer(name, status, driverVersion = 0) {
      load(name).func("void answer_with(int status, int version)")(status, driverVersion);
    },
  };
}

const prelude = `
#include <stdint.h>
#include <string.h>

static unsigned char record[4096];
static uint64_t size;
static int status, version;

static void put(const void *value, uint64_t bytes) {
  memcpy(record + size, value, bytes);
  size += bytes;
}

uint64_t recorded_size(void) { return size; }
uint64_t recorded_bytes(void) { return (uint64_t)(uintptr_t)record; }
void answer_with(int new_status, int new_version) { status = new_status; version = new_version; }
`;

/**
 * Further effects of these functions once they have a status to return: an address is then a place to write
 * to.
 */
const answers: Readonly<Record<string, string>> = {
  cuDriverGetVersion: "if (version) { *(int *)(uintptr_t)p0 = version; return 0; }",
  cuGetErrorName: 'if (status) { *(const char **)(uintptr_t)p1 = "CUDA_ERROR_RECORDED"; return 0; }',
  cuGetErrorString: 'if (status) { *(const char **)(uintptr_t)p1 = "as it was told"; return 0; }',
};

function sourceOf(functions: readonly (readonly [string, Signature])[]): string {
  return [prelude, ...functions.map(([name, signature]) => functionOf(name, signature))].join("\n");
}

function functionOf(name: string, signature: Signature): string {
  const types = listParameters(signature).map((parameter) => splitParameter(parameter).type);
  const declared = types.map((type, index) => `${foreignTypes[type]} p${index}`).join(", ") || "void";
  const puts = types.map(putCode);
  const { result, value } = {
    status: { result: "int", value: "status" },
    text: { result: "const char *", value: `"text of ${name}"` },
    u64: { result: "uint64_t", value: `${returnedNumber}ull` },
    address: { result: "uint64_t", value: `${returnedNumber}ull` },
    nothing: { result: "void", value: "" },
  }[resultType(signature)];
  return `${result} ${name}(${declared}) { size = 0; ${puts.join(" ")} ${answers[name] ?? ""} return ${value}; }`;
}

function putCode(type: ForeignType, index: number): string {
  return type === "text" ? `put(p${index}, strlen(p${index}) + 1);` : `put(&p${index}, sizeof p${index});`;
}
