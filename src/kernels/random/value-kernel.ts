/**
 * The kernels that draw values of a distribution on a device, in WebAssembly and in CUDA C++, with the bits of `drawValues` on the host. A
 * launch names its stream, or reads a draw of the device: a copy of the random state, whose counter is the stream's id.
 */

import {
  type Code,
  encodeKernel,
  type KernelSource,
  type Local,
  type Parameter,
} from "../../driver/index.js";
import { dtypes } from "../../ir/index.js";
import { storeElements } from "../codegen/wasm/elements.js";
import { cachedSource } from "../source-cache.js";
import { type StreamSource, type ValueKind, valuesCode } from "./cuda-values.js";
import { type Distribution, type Integers, scalarsOf } from "./distribution.js";
import { printDraw } from "./random-kernel.js";
import { type RandomStream, requireInStream, uses } from "./random-stream.js";
import { halvesOf } from "./seed.js";
import {
  type FourLocals,
  type PhiloxInput,
  printMultipliers,
  printPhilox,
  printRange,
  wordsPerCounter,
} from "./wasm-philox.js";
import { valuePrinter } from "./wasm-values.js";

export const valueDtypes = ["f32", "f64", "bf16", "f16"] as const;
/** The dtypes of drawn values. A value is rounded to f32 first. */
export type ValueDtype = (typeof valueDtypes)[number];

export const valuesPerBlock = 1024;
const blockShift = Math.log2(valuesPerBlock);

/** The parameters of a stream. */
const streamParameters = {
  arguments: { seedLow: "u32", seedHigh: "u32", idLow: "u32", idHigh: "u32" },
  draw: { draw: "in" },
} as const satisfies Record<StreamSource, Record<string, Parameter>>;

/** The parameters of each distribution: the numbers of `scalarsOf`. */
const scalarParameters = {
  uniform: { a: "f64", b: "f64" },
  normal: { a: "f64", b: "f64" },
  truncNormal: { a: "f64", b: "f64", c: "f64", d: "f64", low: "f64", high: "f64" },
  exponential: { a: "f64" },
  integers: { a: "i32", b: "u32" },
} as const satisfies Record<ValueKind, Record<string, Parameter>>;

/** A kernel of values: their kind, and their dtype in memory. */
type ValueType =
  | { readonly kind: Distribution["kind"]; readonly dtype: ValueDtype }
  | { readonly kind: Integers["kind"]; readonly dtype: "i32" };

/** The kernel of a distribution: `kernel(out values, seed, id, first counter, count, scalars)`. */
export function valueKernel(kind: Distribution["kind"], dtype: ValueDtype): KernelSource {
  return kernelOf({ kind, dtype }, "arguments");
}

/** The kernel of a distribution, of a draw: `kernel(out values, in draw, first counter, count, scalars)`. */
export function drawKernel(type: ValueType): KernelSource {
  return kernelOf(type, "draw");
}

function kernelOf(type: ValueType, source: StreamSource): KernelSource {
  const { kind, dtype } = type;
  return cachedSource(`values ${kind} ${dtype} ${source}`, () => {
    const parameters = {
      ...({ out: "out", ...streamParameters[source] } as const),
      ...({ firstCounter: "u32", count: "u32", ...scalarParameters[kind] } as const),
    };
    const wasm = encodeKernel({
      name: `${kind} ${dtype}${source === "draw" ? " of a draw" : ""}`,
      parameters: Object.values(parameters),
      body: (code, argument) => printValues(code, argument, type, source),
    });
    return { ...wasm, cuda: valuesCode(kind, dtype, source, parameters, valuesPerBlock) };
  });
}

/** A range of a stream's values: `count` from value `first` on, a multiple of four. */
export interface ValueRange {
  readonly first: number;
  readonly count: number;
}

/** The blocks of a launch, and its arguments after the memory. */
export function valueLaunch(
  distribution: Distribution,
  { seed, id }: RandomStream,
  { first, count }: ValueRange,
): { readonly blocks: number; readonly scalars: readonly number[] } {
  requireInStream(count, first);
  const stream = [...halvesOf(seed, "seed"), ...halvesOf(id, "id of a random stream")];
  const { blocks, scalars } = drawLaunch(distribution, { first, count });
  return { blocks, scalars: [...stream, ...scalars] };
}

/** The blocks of a launch that reads a draw, and its arguments after the memory. */
export function drawLaunch(
  distribution: Distribution | Integers,
  { first, count }: ValueRange,
): { readonly blocks: number; readonly scalars: readonly number[] } {
  requireInStream(count, first);
  return {
    blocks: Math.ceil(count / valuesPerBlock),
    scalars: [first / wordsPerCounter, count, ...scalarsOf(distribution)],
  };
}

function printValues(
  code: Code,
  argument: (index: number) => Local,
  { kind, dtype }: ValueType,
  source: StreamSource,
): void {
  const [firstBlock, endBlock, out] = [code.parameter(0), code.parameter(1), argument(0)];
  const next = 1 + Object.keys(streamParameters[source]).length;
  const [firstCounter, count] = [argument(next), argument(next + 1)];
  const [at, end, address] = [code.local("i32"), code.local("i32"), code.local("i32")];
  const counter = code.local("i32");
  const x: FourLocals = [code.local("i32"), code.local("i32"), code.local("i32"), code.local("i32")];
  const input: PhiloxInput =
    source === "draw"
      ? printDraw(code, argument(1))
      : {
          use: uses.values,
          key: [argument(1), argument(2)],
          counter: [argument(3), argument(4)],
          multipliers: printMultipliers(code),
        };
  const printFour = valuePrinter(code, kind, (index) => argument(next + 2 + index));
  const { bytes } = dtypes[dtype];
  printRange(code, { firstBlock, endBlock, count, blockShift }, at, end);
  code.block((leave) => {
    code.loop((again) => {
      code.get(at).get(end).op("i32.ge_u").branchIf(leave);
      code.get(out).get(at).i32(bytes).op("i32.mul").op("i32.add").set(address);
      code
        .get(at)
        .i32(Math.log2(wordsPerCounter))
        .op("i32.shr_u")
        .get(firstCounter)
        .op("i32.add")
        .set(counter);
      const values = printFour(printPhilox(code, input, counter, x));
      code.get(end).get(at).op("i32.sub").i32(wordsPerCounter).op("i32.lt_u");
      code.if(() => {
        for (let lane = 0; lane < wordsPerCounter; lane++) {
          code.get(at).get(end).op("i32.ge_u").branchIf(leave);
          storeValues(code, dtype, address, values, 1);
          code.get(values).get(values).shuffle([1, 2, 3, 0]).set(values);
          code.get(address).i32(bytes).op("i32.add").set(address);
          code.get(at).i32(1).op("i32.add").set(at);
        }
      });
      storeValues(code, dtype, address, values, wordsPerCounter);
      code.get(at).i32(wordsPerCounter).op("i32.add").set(at).branch(again);
    });
  });
}

/** Stores the first `lanes` f32 lanes, or i32 lanes, as elements of the dtype. */
function storeValues(
  code: Code,
  dtype: ValueDtype | "i32",
  address: Local,
  values: Local,
  lanes: 1 | 4,
): void {
  if (dtype !== "f64") {
    storeElements(code, dtype, lanes, address, values);
    return;
  }
  const [wide, next] = [code.local("v128"), code.local("i32")];
  code.get(values).op("f64x2.promote_low_f32x4").set(wide);
  storeElements(code, dtype, lanes === 1 ? 1 : 2, address, wide);
  if (lanes === 1) return;
  code.get(values).get(values).shuffle([2, 3, 0, 1]).op("f64x2.promote_low_f32x4").set(wide);
  code.get(address).i32(16).op("i32.add").set(next);
  storeElements(code, dtype, 2, next, wide);
}
