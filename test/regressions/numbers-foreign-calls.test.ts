/**
 * N9: float arguments of a foreign function were passed in integer registers, and garbage arrived. Every
 * function of every table is called here with a distinct value for each parameter, in a C library that
 * records its arguments.
 */

import assert from "node:assert/strict";
import test from "node:test";
import {
  type ForeignParameter,
  type ForeignType,
  listParameters,
  resultType,
  type Signature,
  type Signatures,
  splitParameter,
} from "../../src/driver/cuda/bindings.js";
import { bindCalls } from "../../src/driver/cuda/calls.js";
import { FailureLog, type ForeignValue } from "../../src/driver/cuda/cuda-error.js";
import { loadKoffi } from "../../src/driver/foreign-functions.js";
import {
  compileRecordingLibraries,
  type RecordedTable,
  type RecordingLibraries,
  recordedTables,
  returnedNumber,
} from "../support/recording-library.js";
import { regressionRow } from "../support/regressions.js";

/** The signatures under which the functions are called; the libraries always have the right ones. */
type Tables = Readonly<Record<string, Signatures>>;

const libraries = compileRecordingLibraries();

if (libraries) {
  regressionRow<Tables>({
    row: "N9",
    rule: "every value of every parameter of every foreign function arrives, byte for byte",
    sound: recordedTables,
    faults: {
      "a float is declared as an integer": replaced("libprobe.so", "probeOrder", (parameters) =>
        parameters.with(0, "u32 a"),
      ),
      "a double is declared as a float": replaced("libprobe.so", "probeOrder", (parameters) =>
        parameters.with(2, "f32 c"),
      ),
      "a size is declared with 32 bits": replaced("libcuda.so.1", "cuMemCreate", (parameters) =>
        parameters.with(1, "u32 size"),
      ),
      "two parameters of different types are swapped": replaced(
        "libcublasLt.so.13",
        "cublasLtMatmulAlgoGetHeuristic",
        (parameters) => swap(parameters, 7, 8),
      ),
      "two parameters of the same type are swapped": replaced("libcuda.so.1", "cuMemMap", (parameters) =>
        swap(parameters, 1, 2),
      ),
      "a parameter on the stack is omitted": replaced("libcuda.so.1", "cuLaunchKernel", (parameters) =>
        parameters.toSpliced(9, 1),
      ),
    },
    check(tables) {
      for (const name of Object.keys(recordedTables) as RecordedTable[]) {
        checkLibrary(libraries, name, tables[name] as Signatures);
      }
    },
  });
} else {
  test.skip("N9: this machine has no C compiler");
}

function replaced(
  library: RecordedTable,
  name: string,
  change: (parameters: readonly ForeignParameter[]) => readonly ForeignParameter[],
): Tables {
  const table: Signatures = recordedTables[library];
  return {
    ...recordedTables,
    [library]: { ...table, [name]: change(listParameters(table[name] as Signature)) },
  };
}

function swap(parameters: readonly ForeignParameter[], first: number, other: number): ForeignParameter[] {
  return parameters
    .with(first, parameters[other] as ForeignParameter)
    .with(other, parameters[first] as ForeignParameter);
}

function checkLibrary(recording: RecordingLibraries, library: RecordedTable, functions: Signatures): void {
  const path = recording.pathOf(library);
  const calls = bindCalls({
    library: "cuda",
    functions,
    opened: { handle: loadKoffi().load(path), path },
    failures: new FailureLog(),
  });
  const trueTable: Signatures = recordedTables[library];
  for (const [name, signature] of Object.entries(trueTable)) {
    const values = listParameters(functions[name] as Signature).map(sentinelOf);
    assert.equal(new Set(values).size, values.length, `${name}: two parameters got the same value`);
    const expected = listParameters(signature).map(bytesOf);
    const call = (calls as Readonly<Record<string, (...args: ForeignValue[]) => unknown>>)[name]!;
    const result = call(...values);
    assert.equal(
      result,
      {
        status: undefined,
        text: `text of ${name}`,
        u64: returnedNumber,
        address: returnedNumber,
        nothing: undefined,
      }[resultType(signature)],
    );
    checkRecord(name, listParameters(signature), expected, recording.recordOf(library));
    if (resultType(signature) !== "status") continue;

    const inStatus = (calls.status as Readonly<Record<string, (...args: ForeignValue[]) => number>>)[name]!;
    assert.equal(inStatus(...values), 0);
    checkRecord(name, listParameters(signature), expected, recording.recordOf(library));
  }
}

function checkRecord(
  name: string,
  parameters: readonly ForeignParameter[],
  expected: readonly Uint8Array[],
  arrived: Uint8Array,
): void {
  let at = 0;
  for (const [index, bytes] of expected.entries()) {
    const [is, should] = [arrived.subarray(at, at + bytes.length), bytes].map((slice) =>
      Buffer.from(slice).toString("hex"),
    );
    assert.equal(is, should, `${name}: ${parameters[index]} arrived as other bytes`);
    at += bytes.length;
  }
  assert.equal(arrived.length, at, `${name} got more arguments than its table has`);
}

/** A value by the parameter's name: one that shows truncation, extension, rounding and misplacement. */
function sentinelOf(parameter: ForeignParameter): ForeignValue {
  const { type, name } = splitParameter(parameter);
  const mark = markOf(name);
  const values: Readonly<Record<ForeignType, ForeignValue>> = {
    u8: 0x80 + (mark % 0x80),
    i32: -0x7000_0000 + mark,
    u32: 0xf000_0000 + mark,
    i64: -(2 ** 52) + mark * 2 ** 33 + 5,
    u64: 2 ** 52 + mark * 2 ** 33 + 3,
    address: 2 ** 46 + mark * 2 ** 33 + 1,
    f32: 1.5 + mark / 1024,
    f64: Math.PI * mark,
    text: `${name} ${mark}, of many bytes: äöü`,
  };
  return values[type];
}

/** Two names of one function must not share a mark: it consists of the name's letters. */
function markOf(name: string): number {
  let mark = 7;
  for (const letter of name) mark = (mark * 31 + letter.charCodeAt(0)) % 65_521;
  return mark;
}

function bytesOf(parameter: ForeignParameter): Uint8Array {
  const { type } = splitParameter(parameter);
  const value = sentinelOf(parameter);
  if (typeof value === "string") return new TextEncoder().encode(`${value}\0`);
  const view = new DataView(new ArrayBuffer(8));
  const bytes = (size: number) => new Uint8Array(view.buffer, 0, size);
  if (type === "u8") view.setUint8(0, value);
  else if (type === "i32") view.setInt32(0, value, true);
  else if (type === "u32") view.setUint32(0, value, true);
  else if (type === "f32") view.setFloat32(0, value, true);
  else if (type === "f64") view.setFloat64(0, value, true);
  else view.setBigInt64(0, BigInt(value), true);
  return bytes(type === "u8" ? 1 : ["i32", "u32", "f32"].includes(type) ? 4 : 8);
}
