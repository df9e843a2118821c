/**
 * Five kernels over float32 arrays, hand-written in WebAssembly. The tests of the driver and the runtime use them, and
 * so does `holdfast tour`. A block is 4096 elements; the last block may be short, and blocks past the end do nothing.
 */

import type { KernelSource, Parameter } from "../driver.js";
import { encodeKernel, type KernelModule } from "./kernel-module.js";
import type { Code, Local } from "./wasm.js";

/** 16 KiB per array: a block's operands fit the L1 cache, and a block takes about a microsecond. */
export const elementsPerBlock = 4096;
const blockShift = Math.log2(elementsPerBlock);

/**
 * Returns the number of blocks that a launch over `elements` needs.
 *
 * @example
 * ```ts
 * import { blockCount } from "holdfast/internals";
 * console.log(blockCount(10_000)); // → 3
 * ```
 */
export function blockCount(elements: number): number {
  return Math.ceil(elements / elementsPerBlock);
}

const vectorBytes = 16;
const scalarBytes = 4;

/** Pushes an address: the array's base plus a byte offset. */
function pushAddress(code: Code, array: Local, at: Local): Code {
  return code.get(array).get(at).op("i32.add");
}

/** `for (; at < end; at += step) body()`, unsigned. */
function emitLoop(code: Code, at: Local, end: Local, step: number, body: () => void): void {
  code.block((leave) => {
    code.loop((next) => {
      code.get(at).get(end).op("i32.ge_u").branchIf(leave);
      body();
      code.get(at).i32(step).op("i32.add").set(at).branch(next);
    });
  });
}

/** Advances `at` by whole vectors until less than one vector remains before `end`. */
function emitVectorLoop(code: Code, at: Local, end: Local, body: () => void): void {
  const vectorEnd = code.local("i32");
  code.get(end).get(at).op("i32.sub").i32(-vectorBytes).op("i32.and");
  code.get(at).op("i32.add").set(vectorEnd);
  emitLoop(code, at, vectorEnd, vectorBytes, body);
}

/**
 * Pushes the byte offset of a block, clamped to the end of the array. The block index is clamped first, so that a block
 * far past the end cannot overflow and wrap to the start of the array.
 */
function pushBlockOffset(code: Code, block: Local, elements: Local): void {
  const lastBlock = 2 ** (32 - blockShift) - 1;
  const firstElement = code.local("i32");
  code.get(block).i32(lastBlock).get(block).i32(lastBlock).op("i32.lt_u").op("select");
  code.i32(blockShift).op("i32.shl").set(firstElement);
  code.get(firstElement).get(elements).get(firstElement).get(elements).op("i32.lt_u").op("select");
  code.i32(2).op("i32.shl");
}

/** Pushes one result, a vector or a scalar, computed from the operands at `at`. */
type Element = (code: Code, argument: (index: number) => Local, at: Local) => void;

/** `out[i] = element(i)` over the elements of the blocks. The last parameter is the element count. */
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
    pushBlockOffset(code, code.parameter(0), elements);
    code.set(at);
    pushBlockOffset(code, code.parameter(1), elements);
    code.set(end);
    const store = (form: Element, instruction: "v128.store" | "f32.store") => () => {
      pushAddress(code, out, at);
      form(code, argument, at);
      code.memory(instruction);
    };
    emitVectorLoop(code, at, end, store(forms.vector, "v128.store"));
    emitLoop(code, at, end, scalarBytes, store(forms.scalar, "f32.store"));
  };
  return encodeKernel({ name, parameters, body });
}

const fill = elementwise("fill", ["out", "f32", "u32"], {
  vector: (code, argument) => code.get(argument(1)).op("f32x4.splat"),
  scalar: (code, argument) => code.get(argument(1)),
});

const copy = elementwise("copy", ["in", "out", "u32"], {
  vector: (code, argument, at) => pushAddress(code, argument(0), at).memory("v128.load"),
  scalar: (code, argument, at) => pushAddress(code, argument(0), at).memory("f32.load"),
});

const add = elementwise("add", ["in", "in", "out", "u32"], {
  vector: (code, argument, at) => {
    pushAddress(code, argument(0), at).memory("v128.load");
    pushAddress(code, argument(1), at).memory("v128.load").op("f32x4.add");
  },
  scalar: (code, argument, at) => {
    pushAddress(code, argument(0), at).memory("f32.load");
    pushAddress(code, argument(1), at).memory("f32.load").op("f32.add");
  },
});

/** The factor is read from memory, so that a graph replay uses its current value. */
const scale = elementwise("scale", ["in", "out", "in", "u32"], {
  vector: (code, argument, at) => {
    pushAddress(code, argument(0), at).memory("v128.load");
    code.get(argument(2)).memory("v128.load32_splat").op("f32x4.mul");
  },
  scalar: (code, argument, at) => {
    pushAddress(code, argument(0), at).memory("f32.load");
    code.get(argument(2)).memory("f32.load").op("f32.mul");
  },
});

/**
 * `out[b]` is the sum of block b. Four lanes accumulate over the block and are added as (0 + 1) + (2 + 3); the
 * remaining elements follow one by one. The element count alone fixes this order, so any number of threads gives the
 * same bits.
 */
const printSum: KernelModule["body"] = (code, argument) => {
  const block = code.parameter(0);
  const endBlock = code.parameter(1);
  const nextBlock = code.local("i32");
  const at = code.local("i32");
  const end = code.local("i32");
  const lanes = code.local("v128");
  const total = code.local("f32");
  emitLoop(code, block, endBlock, 1, () => {
    code.get(block).i32(1).op("i32.add").set(nextBlock);
    pushBlockOffset(code, block, argument(2));
    code.set(at);
    pushBlockOffset(code, nextBlock, argument(2));
    code.set(end);
    code.f32(0).op("f32x4.splat").set(lanes);
    emitVectorLoop(code, at, end, () => {
      pushAddress(code, argument(0), at).memory("v128.load").get(lanes).op("f32x4.add").set(lanes);
    });
    const addLanes = (first: number, second: number) => {
      code.get(lanes).lane("f32x4.extract_lane", first);
      code.get(lanes).lane("f32x4.extract_lane", second).op("f32.add");
    };
    addLanes(0, 1);
    addLanes(2, 3);
    code.op("f32.add").set(total);
    emitLoop(code, at, end, scalarBytes, () => {
      code.get(total);
      pushAddress(code, argument(0), at).memory("f32.load").op("f32.add").set(total);
    });
    code.get(argument(1)).get(block).i32(2).op("i32.shl").op("i32.add").get(total).memory("f32.store");
  });
};
const sum = encodeKernel({ name: "sum", parameters: ["in", "out", "u32"], body: printSum });

export const basicKernels = { fill, copy, add, scale, sum } as const satisfies Record<string, KernelSource>;
