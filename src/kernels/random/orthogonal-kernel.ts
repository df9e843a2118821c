/**
 * The kernels of random orthogonal matrices, in WebAssembly and in CUDA C++, with the bits of `orthogonal` on the host.
 * `scaleReflectors` turns rows of normal values into reflectors; `reflectUnits` applies them to unit vectors.
 */

import { type Code, encodeKernel, type KernelSource, type Local } from "../../driver/index.js";
import { reflectUnitsCode, scaleReflectorsCode } from "./cuda-orthogonal.js";
import { lanes } from "./orthogonal.js";

/** The rows of a block: a thread's in `scaleReflectors`, a warp's in `reflectUnits`. */
export const rowsPerBlock = 8;
const elementBytes = 4;
const vectorBytes = 16;
/** f32 vectors of the partial sums. */
const vectorsPerStep = lanes / 4;
const stepBytes = vectorsPerStep * vectorBytes;

/** The number of blocks of a launch over `count` rows. */
export function blocksForRows(count: number): number {
  return Math.ceil(count / rowsPerBlock);
}

/** Runs `body` while the local is below `end`, and adds `step` to it. */
function printLoop(code: Code, local: Local, end: Local, step: number, body: () => void): void {
  code.block((leave) => {
    code.loop((again) => {
      code.get(local).get(end).op("i32.ge_u").branchIf(leave);
      body();
      code.get(local).i32(step).op("i32.add").set(local).branch(again);
    });
  });
}

/** Sets the first row of a range of blocks and the row after its last one. */
function printRows(code: Code, count: Local, row: Local, end: Local): void {
  for (const [block, target] of [
    [code.parameter(0), row],
    [code.parameter(1), end],
  ] as const) {
    code.get(block).i32(rowsPerBlock).op("i32.mul").get(count);
    code.get(block).i32(rowsPerBlock).op("i32.mul").get(count).op("i32.lt_u").op("select").set(target);
  }
}

/** Pushes base + row · stride elements. */
function pushRow(code: Code, base: Local, row: Local, stride: Local): Code {
  return code.get(base).get(row).get(stride).op("i32.mul").i32(elementBytes).op("i32.mul").op("i32.add");
}

/** Pushes address + index elements. */
function pushElement(code: Code, address: Local, index: Local): Code {
  return code.get(address).get(index).i32(elementBytes).op("i32.mul").op("i32.add");
}

function printScaleReflectors(code: Code, argument: (index: number) => Local): void {
  const [reflectors, count, length, stride] = [argument(0), argument(1), argument(2), argument(3)];
  const [row, end, i, address] = [code.local("i32"), code.local("i32"), code.local("i32"), code.local("i32")];
  const [sum, pivot, norm] = [code.local("f64"), code.local("f64"), code.local("f64")];
  const [scale, value] = [code.local("f64"), code.local("f64")];
  const load = (): Code => code.memory("f32.load").op("f64.promote_f32");
  printRows(code, count, row, end);
  printLoop(code, row, end, 1, () => {
    pushRow(code, reflectors, row, stride).set(address);
    code.f64(0).set(sum);
    code.get(row).set(i);
    printLoop(code, i, length, 1, () => {
      pushElement(code, address, i);
      load().tee(value).get(value).op("f64.mul").get(sum).op("f64.add").set(sum);
    });
    pushElement(code, address, row);
    load().set(pivot);
    code.get(sum).f64(0).op("f64.gt").op("i32.eqz");
    code.if(() => {
      code.f64(1).set(pivot);
      code.f64(1).set(sum);
    });
    code.get(sum).op("f64.sqrt").set(norm);
    code.f64(1).get(sum).get(pivot).op("f64.abs").get(norm).op("f64.mul").op("f64.add");
    code.op("f64.sqrt").op("f64.div").set(scale);
    code.get(address).i32(0).get(row).i32(elementBytes).op("i32.mul").op("memory.fill");
    code.get(row).i32(1).op("i32.add").set(i);
    printLoop(code, i, length, 1, () => {
      pushElement(code, address, i);
      pushElement(code, address, i);
      load().get(scale).op("f64.mul").op("f32.demote_f64").memory("f32.store");
    });
    pushElement(code, address, length).i32(0);
    code.get(stride).get(length).op("i32.sub").i32(elementBytes).op("i32.mul").op("memory.fill");
    pushElement(code, address, row);
    // The norm gets the pivot's sign, so that nothing cancels.
    code.get(pivot).get(norm).op("f64.sub").get(pivot).get(norm).op("f64.add");
    code.get(pivot).f64(0).op("f64.lt").op("select").get(scale).op("f64.mul");
    code.op("f32.demote_f64").memory("f32.store");
  });
}

function printReflectUnits(code: Code, argument: (index: number) => Local): void {
  const [vectors, reflectors, count, stride, gain] = [0, 1, 2, 3, 4].map(argument) as [
    Local,
    Local,
    Local,
    Local,
    Local,
  ];
  const [block, first, end] = [code.local("i32"), code.local("i32"), code.local("i32")];
  const [j, k, vector, reflector] = [
    code.local("i32"),
    code.local("i32"),
    code.local("i32"),
    code.local("i32"),
  ];
  const rowBytes = code.local("i32");
  code.get(stride).i32(elementBytes).op("i32.mul").set(rowBytes);
  code.get(code.parameter(0)).set(block);
  printLoop(code, block, code.parameter(1), 1, () => {
    code.get(block).i32(rowsPerBlock).op("i32.mul").set(first);
    code.get(first).i32(rowsPerBlock).op("i32.add").get(count);
    code.get(first).i32(rowsPerBlock).op("i32.add").get(count).op("i32.lt_u").op("select").set(end);
    const eachVector = (body: () => void): void => {
      code.get(first).set(j);
      printLoop(code, j, end, 1, () => {
        pushRow(code, vectors, j, stride).set(vector);
        body();
      });
    };
    eachVector(() => {
      code.get(vector).i32(0).get(rowBytes).op("memory.fill");
      pushElement(code, vector, j).f32(1).memory("f32.store");
    });
    // All vectors of the block share a reflector while it is in the cache. One beyond a vector's own adds exact zeros.
    code.get(end).set(k);
    code.loop((again) => {
      code.get(k).i32(1).op("i32.sub").set(k);
      pushRow(code, reflectors, k, stride).set(reflector);
      eachVector(() => printReflection(code, { vector, reflector, first: k, rowBytes }));
      code.get(k).branchIf(again);
    });
    eachVector(() => printSigned(code, { vector, reflectors, j, stride, rowBytes, gain }));
  });
}

interface Reflection {
  readonly vector: Local;
  readonly reflector: Local;
  /** The reflector's first element that is not zero. */
  readonly first: Local;
  readonly rowBytes: Local;
}

/** vector −= reflector · (reflectorᵀ · vector). */
function printReflection(code: Code, { vector, reflector, first, rowBytes }: Reflection): void {
  const [at, x, w, product] = [code.local("i32"), code.local("i32"), code.local("i32"), code.local("v128")];
  const partial = Array.from({ length: vectorsPerStep }, () => code.local("v128"));
  const printSteps = (body: () => void): void => {
    code.get(first).i32(-lanes).op("i32.and").i32(elementBytes).op("i32.mul").set(at);
    printLoop(code, at, rowBytes, stepBytes, () => {
      code.get(vector).get(at).op("i32.add").set(x);
      code.get(reflector).get(at).op("i32.add").set(w);
      body();
    });
  };
  for (const sum of partial) code.f32(0).op("f32x4.splat").set(sum);
  printSteps(() => {
    for (const [index, sum] of partial.entries()) {
      const offset = index * vectorBytes;
      code.get(sum).get(w).memory("v128.load", offset).get(x).memory("v128.load", offset);
      code.op("f32x4.mul").op("f32x4.add").set(sum);
    }
  });
  printLaneSum(code, partial, product);
  printSteps(() => {
    for (let offset = 0; offset < stepBytes; offset += vectorBytes) {
      code.get(x).get(x).memory("v128.load", offset);
      code.get(product).get(w).memory("v128.load", offset).op("f32x4.mul").op("f32x4.sub");
      code.memory("v128.store", offset);
    }
  });
}

/** Adds lane l + 16 to lane l, then l + 8, 4, 2 and 1, and splats lane 0. */
function printLaneSum(code: Code, partial: readonly Local[], product: Local): void {
  let rest = [...partial];
  while (rest.length > 1) {
    const half = rest.length / 2;
    const upper = rest.slice(half);
    rest = rest.slice(0, half);
    for (const [index, sum] of rest.entries()) {
      const other = upper[index];
      if (other) code.get(sum).get(other).op("f32x4.add").set(sum);
    }
  }
  for (const sum of rest) {
    code.get(sum).get(sum).get(sum).shuffle([2, 3, 2, 3]).op("f32x4.add").set(product);
    code.get(product).get(product).get(product).shuffle([1, 1, 1, 1]).op("f32x4.add").set(product);
    code.get(product).get(product).shuffle([0, 0, 0, 0]).set(product);
  }
}

interface SignedVector {
  readonly vector: Local;
  readonly reflectors: Local;
  readonly j: Local;
  readonly stride: Local;
  readonly rowBytes: Local;
  readonly gain: Local;
}

/** vector *= gain, negated unless the drawn pivot is negative. */
function printSigned(code: Code, { vector, reflectors, j, stride, rowBytes, gain }: SignedVector): void {
  const [at, address, scale] = [code.local("i32"), code.local("i32"), code.local("f64")];
  pushRow(code, reflectors, j, stride).set(address);
  code.get(gain).get(gain).op("f64.neg");
  pushElement(code, address, j).memory("f32.load").f32(0).op("f32.lt").op("select").set(scale);
  code.i32(0).set(at);
  printLoop(code, at, rowBytes, elementBytes, () => {
    code.get(vector).get(at).op("i32.add").tee(address).get(scale);
    code.get(address).memory("f32.load").op("f64.promote_f32").op("f64.mul").op("f32.demote_f64");
    code.memory("f32.store");
  });
}

/** `scaleReflectors(inout rows, count, length, stride)`, over `blocksForRows(count)` blocks. */
const scaleReflectors: KernelSource = {
  ...encodeKernel({
    name: "scaleReflectors",
    parameters: ["inout", "u32", "u32", "u32"],
    body: printScaleReflectors,
  }),
  cuda: scaleReflectorsCode(rowsPerBlock),
};

/** `reflectUnits(out vectors, in reflectors, count, stride, gain)`, over `blocksForRows(count)` blocks. */
const reflectUnits: KernelSource = {
  ...encodeKernel({
    name: "reflectUnits",
    parameters: ["out", "in", "u32", "u32", "f64"],
    body: printReflectUnits,
  }),
  cuda: reflectUnitsCode(rowsPerBlock),
};

export const orthogonalKernels = { scaleReflectors, reflectUnits } as const satisfies Record<
  string,
  KernelSource
>;
