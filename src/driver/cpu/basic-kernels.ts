/**
 * Five kernels over float32 arrays, written by hand in WebAssembly: what the driver's tests, the runtime's tests
 * and `holdfast tour` need before the op table's lowerings exist. A block is 4096 elements; the last one may be
 * short, and blocks behind the end have nothing to do.
 */

import type { KernelSource, Parameter } from "../driver.js";
import { encodeKernel, type KernelModule } from "./kernel-module.js";
import type { Code, Local } from "./wasm.js";

/** 16 KiB an array: a block's operands fit a first-level cache, and a block takes a microsecond or so. */
export const elementsPerBlock = 4096;
const blockShift = Math.log2(elementsPerBlock);

/**
 * How many blocks a launch over `elements` needs.
 *
 * @example
 * ```ts
 * import { blocksFor } from "holdfast";
 * console.log(blocksFor(10_000)); // → 3
 * ```
 */
export function blocksFor(elements: number): number {
  return Math.ceil(elements / elementsPerBlock);
}

const vectorBytes = 16;
const scalarBytes = 4;

/** An address: where an array begins, plus how many bytes of it are done. */
function addressOf(code: Code, array: Local, at: Local): Code {
  return code.get(array).get(at).op("i32.add");
}

/** `for (; at < end; at += step) body()`, unsigned. */
function forRange(code: Code, at: Local, end: Local, step: number, body: () => void): void {
  code.block((leave) => {
    code.loop((again) => {
      code.get(at).get(end).op("i32.ge_u").branchIf(leave);
      body();
      code.get(at).i32(step).op("i32.add").set(at).branch(again);
    });
  });
}

/** Walks `at` by whole vectors, and leaves it where fewer than one of them remains before `end`. */
function forVectors(code: Code, at: Local, end: Local, body: () => void): void {
  const vectorEnd = code.local("i32");
  code.get(end).get(at).op("i32.sub").i32(-vectorBytes).op("i32.and");
  code.get(at).op("i32.add").set(vectorEnd);
  forRange(code, at, vectorEnd, vectorBytes, body);
}

/**
 * Leaves on the stack the byte offset at which a block begins, or that of the array's end if it is nearer.
 * The block is clamped first, so that one far behind the end can't wrap round to the array's beginning.
 */
function byteOffsetOfBlock(code: Code, block: Local, elements: Local): void {
  const lastBlock = 2 ** (32 - blockShift) - 1;
  const begin = code.local("i32");
  code.get(block).i32(lastBlock).get(block).i32(lastBlock).op("i32.lt_u").op("select");
  code.i32(blockShift).op("i32.shl").set(begin);
  code.get(begin).get(elements).get(begin).get(elements).op("i32.lt_u").op("select");
  code.i32(2).op("i32.shl");
}

/** Leaves one result on the stack, as a vector or as a scalar, from the operands at `at`. */
type Element = (code: Code, argument: (index: number) => Local, at: Local) => void;

/** `out[i] = element(i)` over the blocks' elements; the last parameter is the element count. */
function elementwise(
  name: string,
  parameters: readonly Parameter[],
  forms: { readonly vector: Element; readonly scalar: Element },
): KernelSource {
  const body: KernelModule["body"] = (code, argument) => {
    const elements = argument(parameters.length - 1);
    const out = argument(parameters.indexOf("out"));
    const at = code.local("i32");
    const end = code.local("i32");
    byteOffsetOfBlock(code, code.parameter(0), elements);
    code.set(at);
    byteOffsetOfBlock(code, code.parameter(1), elements);
    code.set(end);
    const store = (form: Element, instruction: "v128.store" | "f32.store") => () => {
      addressOf(code, out, at);
      form(code, argument, at);
      code.memory(instruction);
    };
    forVectors(code, at, end, store(forms.vector, "v128.store"));
    forRange(code, at, end, scalarBytes, store(forms.scalar, "f32.store"));
  };
  return encodeKernel({ name, parameters, body });
}

const fill = elementwise("fill", ["out", "f32", "u32"], {
  vector: (code, argument) => code.get(argument(1)).op("f32x4.splat"),
  scalar: (code, argument) => code.get(argument(1)),
});

const copy = elementwise("copy", ["in", "out", "u32"], {
  vector: (code, argument, at) => addressOf(code, argument(0), at).memory("v128.load"),
  scalar: (code, argument, at) => addressOf(code, argument(0), at).memory("f32.load"),
});

const add = elementwise("add", ["in", "in", "out", "u32"], {
  vector: (code, argument, at) => {
    addressOf(code, argument(0), at).memory("v128.load");
    addressOf(code, argument(1), at).memory("v128.load").op("f32x4.add");
  },
  scalar: (code, argument, at) => {
    addressOf(code, argument(0), at).memory("f32.load");
    addressOf(code, argument(1), at).memory("f32.load").op("f32.add");
  },
});

/** The factor is read from memory, so that a replay works with its present value. */
const scale = elementwise("scale", ["in", "out", "in", "u32"], {
  vector: (code, argument, at) => {
    addressOf(code, argument(0), at).memory("v128.load");
    code.get(argument(2)).memory("v128.load32_splat").op("f32x4.mul");
  },
  scalar: (code, argument, at) => {
    addressOf(code, argument(0), at).memory("f32.load");
    code.get(argument(2)).memory("f32.load").op("f32.mul");
  },
});

/**
 * `out[b]` = the sum of block b. Four lanes run over the block, are added as (0 + 1) + (2 + 3), then come the last
 * elements one by one: an order that the element count fixes, so any number of threads gives the same bits.
 */
const printSum: KernelModule["body"] = (code, argument) => {
  const block = code.parameter(0);
  const endBlock = code.parameter(1);
  const nextBlock = code.local("i32");
  const at = code.local("i32");
  const end = code.local("i32");
  const lanes = code.local("v128");
  const total = code.local("f32");
  forRange(code, block, endBlock, 1, () => {
    code.get(block).i32(1).op("i32.add").set(nextBlock);
    byteOffsetOfBlock(code, block, argument(2));
    code.set(at);
    byteOffsetOfBlock(code, nextBlock, argument(2));
    code.set(end);
    code.f32(0).op("f32x4.splat").set(lanes);
    forVectors(code, at, end, () => {
      addressOf(code, argument(0), at).memory("v128.load").get(lanes).op("f32x4.add").set(lanes);
    });
    const addLanes = (first: number, second: number) => {
      code.get(lanes).lane("f32x4.extract_lane", first);
      code.get(lanes).lane("f32x4.extract_lane", second).op("f32.add");
    };
    addLanes(0, 1);
    addLanes(2, 3);
    code.op("f32.add").set(total);
    forRange(code, at, end, scalarBytes, () => {
      code.get(total);
      addressOf(code, argument(0), at).memory("f32.load").op("f32.add").set(total);
    });
    code.get(argument(1)).get(block).i32(2).op("i32.shl").op("i32.add").get(total).memory("f32.store");
  });
};
const sum = encodeKernel({ name: "sum", parameters: ["in", "out", "u32"], body: printSum });

export const basicKernels = { fill, copy, add, scale, sum } as const satisfies Record<string, KernelSource>;
